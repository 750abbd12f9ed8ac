// compact_cache: all layers at once, in place. Every block checks all paths; then a thread moves one column of a row.
//
// A path ascends from 0, so path[j] >= j: a row is read before a later one takes its place, and where a thread goes up
// its column nothing is lost. It gathers ROWS rows before it scatters them, so that their loads run together.
#include "tree.cuh"

constexpr int ROWS = 8;

struct Paths {
  const int *prefix_len_B, *path_BN, *accept_len_B;
  long long B, N, S;
};

// Tell, to all lanes of a warp, whether batch row b has a path that is none.
__device__ inline bool is_bad(const Paths& paths, long long b) {
  const long long P = paths.prefix_len_B[b], length = paths.accept_len_B[b];
  const int* path_N = paths.path_BN + b * paths.N;
  bool bad = length < 0 || length > paths.N || P < 0 || P > paths.S;
  for (long long j = threadIdx.x % 32; !bad && j < length; j += 32) {
    const int slot = path_N[j];
    bad = (j == 0 ? slot != ROOT : slot <= path_N[j - 1]) || P + slot >= paths.S;
  }
  return __any_sync(0xffffffffu, bad);
}

template <class Word>
__device__ void move_rows(const Paths& paths, Word* kv_YBSW, long long Y, long long W) {
  const long long threads = (long long)gridDim.x * blockDim.x, B = paths.B;
  for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < Y * B * W; k += threads) {
    const long long row = k / W, b = row % B;
    const int *path_N = paths.path_BN + b * paths.N, length = paths.accept_len_B[b];
    Word* column = kv_YBSW + (row * paths.S + paths.prefix_len_B[b]) * W + k % W;
    for (int start = 0; start < length; start += ROWS) {
      Word kept[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (start + r < length) kept[r] = column[path_N[start + r] * W];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (start + r < length) column[(start + r) * W] = kept[r];
    }
  }
}

extern "C" __global__ void compact_cache(int4* kv_YBSX, const int* prefix_len_B, const int* path_BN,
                                         const int* accept_len_B, long long Y, long long B, long long S, long long N,
                                         long long row_bytes, int* length_B, int* status_B) {
  const Paths paths = {prefix_len_B, path_BN, accept_len_B, B, N, S};
  bool bad = false;
  for (long long b = threadIdx.x / 32; b < B; b += blockDim.x / 32) {
    const bool row_is_bad = is_bad(paths, b);
    if (blockIdx.x == 0 && threadIdx.x % 32 == 0) status_B[b] = row_is_bad;
    bad |= row_is_bad;
  }
  bad = __syncthreads_or(bad);
  for (long long b = threadIdx.x; blockIdx.x == 0 && b < B; b += blockDim.x)
    length_B[b] = prefix_len_B[b] + (bad ? 0 : accept_len_B[b]);
  if (bad) return;

  const unsigned long long divisor = (unsigned long long)kv_YBSX | row_bytes;
  if (divisor % 16 == 0) move_rows(paths, kv_YBSX, Y, row_bytes / 16);
  else if (divisor % 4 == 0) move_rows(paths, (int*)kv_YBSX, Y, row_bytes / 4);
  else move_rows(paths, (char*)kv_YBSX, Y, row_bytes);
}
