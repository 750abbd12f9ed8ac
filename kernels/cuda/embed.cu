// embed: a block a row.

extern "C" __global__ void embed(const int* token_T, const REAL* weight_VD, long long V, long long D, REAL* x_TD,
                                 int* status_T) {
  const long long t = blockIdx.x;
  const int token = token_T[t];
  const bool bad = token < 0 || token >= V;
  if (threadIdx.x == 0) status_T[t] = bad;
  for (long long d = threadIdx.x; d < D; d += blockDim.x) x_TD[t * D + d] = bad ? 0 : weight_VD[token * D + d];
}
