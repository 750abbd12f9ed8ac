// unabsorb: linear for each head.
#include "reals.cuh"
#include "products.cuh"

extern "C" __global__ void unabsorb(const REAL* latent_THC, const REAL* v_b_HMC, long long T, long long H, long long C,
                                    long long M, REAL* value_THM) {
  const long long h = blockIdx.y;
  multiply(latent_THC + h * C, H * C, v_b_HMC + h * M * C, T, C, M, value_THM + h * M, H * M);
}
