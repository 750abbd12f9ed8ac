// swiglu: a thread a number.
#include "reals.cuh"

extern "C" __global__ void swiglu(const REAL* gate_TF, const REAL* up_TF, long long size, REAL* y_TF) {
  const long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (k < size) y_TF[k] = silu(gate_TF[k]) * up_TF[k];
}
