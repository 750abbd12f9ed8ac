// rope: a block a row, which forms each angle once for all heads.

extern "C" __global__ void rope(const REAL* x_THR, const int* position_T, const double* inv_freq_J, long long H,
                                int J, double scale, int interleave, REAL* y_THR) {
  extern __shared__ REAL turn_2J[];
  REAL *cos_J = turn_2J, *sin_J = turn_2J + J;
  const long long t = blockIdx.x;
  for (int j = threadIdx.x; j < J; j += blockDim.x) {
    const double angle = position_T[t] * inv_freq_J[j];
    cos_J[j] = (REAL)(cos(angle) * scale);
    sin_J[j] = (REAL)(sin(angle) * scale);
  }
  __syncthreads();
  for (long long pair = threadIdx.x; pair < H * J; pair += blockDim.x) {
    const int j = (int)(pair % J);
    const long long at = (t * H + pair / J) * 2 * J;
    const REAL first = x_THR[at + (interleave ? 2 * j : j)], second = x_THR[at + (interleave ? 2 * j + 1 : J + j)];
    y_THR[at + j] = first * cos_J[j] - second * sin_J[j];
    y_THR[at + J + j] = second * cos_J[j] + first * sin_J[j];
  }
}
