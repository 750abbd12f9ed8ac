// int4_dequant: a thread a weight; the eight of a word are neighbours.

constexpr int NIBBLES = 8, GROUP = 32;
constexpr float SCALE_LIMIT = 0x1p124f;

__device__ inline float bf16_nearest(float x) {
  const unsigned bits = __float_as_uint(x);
  return __uint_as_float((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

extern "C" __global__ void int4_dequant(const int* packed_OW, const float* scale_OG, long long I, int rounded,
                                        float* weight_OI, int* status_O) {
  const long long o = blockIdx.x, words = (I + NIBBLES - 1) / NIBBLES, groups = (I + GROUP - 1) / GROUP;
  bool bad = false;
  for (long long i = threadIdx.x; i < I; i += blockDim.x) {
    const float scale = scale_OG[o * groups + i / GROUP];
    bad |= !(fabsf(scale) < SCALE_LIMIT);
    const unsigned word = packed_OW[o * words + i / NIBBLES];
    const int code = (int)(word >> 4 * (i % NIBBLES) & 15) - 8;
    const float product = code * scale;
    weight_OI[o * I + i] = rounded ? bf16_nearest(product) : product;
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) status_O[o] = bad;
}
