// argmax: one block a row. Each thread keeps the first of its largest logits, then threads compare in pairs.
#include "reals.cuh"
#include "rows.cuh"

struct Best {
  REAL logit;
  int token;
};

__device__ inline Best better(Best a, Best b) {
  return b.logit > a.logit || (b.logit == a.logit && b.token < a.token) ? b : a;
}

__device__ inline Best best_of_warp(Best mine) {
  for (int bit = 16; bit; bit /= 2)
    mine = better(mine, {__shfl_xor_sync(0xffffffffu, mine.logit, bit), __shfl_xor_sync(0xffffffffu, mine.token, bit)});
  return mine;
}

extern "C" __global__ void __launch_bounds__(1024)
    argmax(const REAL* logit_TV, long long V, int* token_T, int* status_T) {
  __shared__ Best best_of_warps[32];
  const long long t = blockIdx.x;
  const REAL* logit_V = logit_TV + t * V;
  Best mine = {-infinity(), 0x7fffffff};
  bool bad = V == 0;
  for_each<32 / sizeof(REAL)>(logit_V, V, [&](long long v, REAL logit) {
    bad |= logit != logit;
    mine = better(mine, {logit, (int)v});
  });
  mine = best_of_warp(mine);
  if (threadIdx.x % 32 == 0) best_of_warps[threadIdx.x / 32] = mine;
  bad = __syncthreads_or(bad);
  if (threadIdx.x >= 32) return;
  mine = threadIdx.x < blockDim.x / 32 ? best_of_warps[threadIdx.x] : Best{-infinity(), 0x7fffffff};
  mine = best_of_warp(mine);
  if (threadIdx.x == 0) token_T[t] = bad ? 0 : mine.token, status_T[t] = bad;
}
