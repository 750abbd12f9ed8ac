// absorb: a thread sums a column of a head's matrix for 8 rows. Lanes read neighbouring columns.
#include "reals.cuh"

constexpr int ROWS = 8;
constexpr int PART = 16;  // terms that are summed by themselves, so that rounding grows slowly

extern "C" __global__ void absorb(const REAL* q_nope_THU, const REAL* k_b_HUC, long long T, long long H, long long U,
                                  long long C, REAL* q_latent_THC) {
  const long long row_tiles = (T + ROWS - 1) / ROWS, h = blockIdx.y;
  const long long t = blockIdx.x % row_tiles * ROWS;  // row tiles side by side, for they share weights
  const long long c = blockIdx.x / row_tiles * blockDim.x + threadIdx.x;
  if (c >= C) return;
  const REAL *q_R[ROWS], *weight_U = k_b_HUC + h * U * C + c;
#pragma unroll
  for (int r = 0; r < ROWS; r++) q_R[r] = q_nope_THU + (min(t + r, T - 1) * H + h) * U;

  REAL sum_R[ROWS] = {};
  for (long long first = 0; first < U; first += PART) {
    REAL part_R[ROWS] = {};
#pragma unroll 4
    for (long long u = first; u < min(first + PART, U); u++) {
      const REAL weight = weight_U[u * C];
#pragma unroll
      for (int r = 0; r < ROWS; r++) part_R[r] = multiply_add(q_R[r][u], weight, part_R[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum_R[r] += part_R[r];
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (t + r < T) q_latent_THC[((t + r) * H + h) * C + c] = sum_R[r];
}
