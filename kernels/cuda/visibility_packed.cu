// visibility_packed: one warp a row, one lane a word. All lanes walk up together, each keeps the bits of its word.
#include "tree.cuh"

extern "C" __global__ void visibility_packed(const int* parent_BN, const int* node_count_B, long long N,
                                             unsigned long long* visible_BNW, int* status_B) {
  const int rows = blockDim.x / warpSize, lane = threadIdx.x % warpSize;
  const long long W = (N + 63) / 64, tiles = N / rows + 1, b = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int* parent_N = parent_BN + b * N;
  const int count = checked_count(parent_N, node_count_B[b], N);
  if (tile == 0 && threadIdx.x == 0) status_B[b] = count == 0;

  const long long i = tile * rows + threadIdx.x / warpSize;
  if (i >= N) return;
  for (long long word = lane; word < W; word += warpSize) {
    unsigned long long bits = 0;
    for (int slot = i < count ? (int)i : NO_NODE; slot != NO_NODE; slot = parent_N[slot]) {
      if (slot / 64 == word) bits |= 1ull << slot % 64;
    }
    visible_BNW[(b * N + i) * W + word] = bits;
  }
}
