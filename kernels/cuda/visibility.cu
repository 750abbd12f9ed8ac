// visibility: one warp a row. The lanes clear the row, then its slot's ancestors are set.
#include "tree.cuh"

extern "C" __global__ void visibility(const int* parent_BN, const int* node_count_B, long long N, bool* visible_BNN,
                                      int* status_B) {
  const int rows = blockDim.x / warpSize, lane = threadIdx.x % warpSize;
  const long long tiles = N / rows + 1, b = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int* parent_N = parent_BN + b * N;
  const int count = checked_count(parent_N, node_count_B[b], N);
  if (tile == 0 && threadIdx.x == 0) status_B[b] = count == 0;

  const long long i = tile * rows + threadIdx.x / warpSize;
  if (i >= N) return;
  bool* visible_N = visible_BNN + (b * N + i) * N;
  for (long long j = lane; j < N; j += warpSize) visible_N[j] = false;
  __syncwarp();
  if (lane == 0 && i < count) {
    for (int slot = (int)i; slot != NO_NODE; slot = parent_N[slot]) visible_N[slot] = true;
  }
}
