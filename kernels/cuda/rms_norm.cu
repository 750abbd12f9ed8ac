// rms_norm: a block a row, whose threads sum squares lane by lane, then over lanes, then over warps.
#include "reals.cuh"

extern "C" __global__ void rms_norm(const REAL* x_TD, const REAL* weight_D, long long D, REAL eps, REAL* y_TD) {
  __shared__ REAL sum_W[32];
  const REAL* x_D = x_TD + blockIdx.x * D;
  REAL* y_D = y_TD + blockIdx.x * D;
  REAL sum = 0;
  for (long long d = threadIdx.x; d < D; d += blockDim.x) sum = multiply_add(x_D[d], x_D[d], sum);
  for (int step = warpSize / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % warpSize == 0) sum_W[threadIdx.x / warpSize] = sum;
  __syncthreads();
  REAL total = 0;
  for (int warp = 0; warp < (int)blockDim.x / warpSize; warp++) total += sum_W[warp];
  const REAL root = square_root(total / D + eps);
  for (long long d = threadIdx.x; d < D; d += blockDim.x) y_D[d] = weight_D[d] * (x_D[d] / root);
}
