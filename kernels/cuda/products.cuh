// Sums of products in one order: an output's bits depend on the width of its sum, not on what is formed beside it.
//
// A warp forms ROWS x COLUMNS outputs at once, so that it reads a weight once for ROWS rows. Lane l sums the elements
// l, l + 32, ..., and partners 16, 8, 4, 2 and 1 lanes apart are added. Include reals.cuh before.
#pragma once

constexpr int ROWS = 8, COLUMNS = 4, LANES = 32;  // as many outputs of a warp as lanes

// Add the sums of all lanes; lane k gets the total of sum k. Partners swap halves: 31 shuffles, not 5 for each sum.
__device__ inline REAL add_lanes(REAL (&sum_K)[LANES]) {
#pragma unroll
  for (int half = LANES / 2; half > 0; half /= 2) {
    const bool upper = threadIdx.x & half;
#pragma unroll
    for (int k = 0; k < half; k++) {
      const REAL kept = upper ? sum_K[k + half] : sum_K[k], sent = upper ? sum_K[k] : sum_K[k + half];
      sum_K[k] = kept + __shfl_xor_sync(0xffffffffu, sent, half);
    }
  }
  return sum_K[0];
}

// Multiply rows by weights, all of I numbers; lane k gets the product of row k / COLUMNS and weight k % COLUMNS.
__device__ inline REAL products(const REAL* const (&x_R)[ROWS], const REAL* const (&weight_Q)[COLUMNS], long long I) {
  REAL sum_K[LANES] = {};
#pragma unroll 2
  for (long long i = threadIdx.x % LANES; i < I; i += LANES) {
    REAL x[ROWS], weight[COLUMNS];
#pragma unroll
    for (int q = 0; q < COLUMNS; q++) weight[q] = weight_Q[q][i];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = x_R[r][i];
#pragma unroll
    for (int k = 0; k < LANES; k++) sum_K[k] = multiply_add(x[k / COLUMNS], weight[k % COLUMNS], sum_K[k]);
  }
  return add_lanes(sum_K);
}

// Find the weights of this warp's columns in a matrix of O rows; past the last column they repeat it.
__device__ inline void find_weights(const REAL* weight_OI, long long o, long long O, long long I,
                                    const REAL* (&weight_Q)[COLUMNS]) {
#pragma unroll
  for (int q = 0; q < COLUMNS; q++) weight_Q[q] = weight_OI + min(o + q, O - 1) * I;
}

// y = x W^T, a block ROWS rows and as many columns as it has warps, COLUMNS each; strides are from row to row.
__device__ inline void multiply(const REAL* x_TI, long long x_stride, const REAL* weight_OI, long long T, long long I,
                                long long O, REAL* y_TO, long long y_stride) {
  const long long row_tiles = (T + ROWS - 1) / ROWS, warps = blockDim.x / LANES;
  const long long t = blockIdx.x % row_tiles * ROWS;  // row tiles side by side, for they share weights
  const long long o = (blockIdx.x / row_tiles * warps + threadIdx.x / LANES) * COLUMNS;
  if (o >= O) return;
  const REAL *x_R[ROWS], *weight_Q[COLUMNS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) x_R[r] = x_TI + min(t + r, T - 1) * x_stride;
  find_weights(weight_OI, o, O, I, weight_Q);
  const REAL y = products(x_R, weight_Q, I);
  const int r = threadIdx.x % LANES / COLUMNS, q = threadIdx.x % COLUMNS;
  if (t + r < T && o + q < O) y_TO[(t + r) * y_stride + o + q] = y;
}
