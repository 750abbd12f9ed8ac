// visibility_intervals: one block a tree. Each slot adds itself to the sizes of its ancestors; then a slot's place is
// the sum, over itself and its ancestors below the root, of 1 and the sizes of earlier siblings.
#include "tree.cuh"

extern "C" __global__ void visibility_intervals(const int* parent_BN, const int* node_count_B, long long N, int* pre_BN,
                                                int* size_BN, int* status_B) {
  extern __shared__ int size_N[];
  int* step_N = size_N + N;  // from the parent's place to the slot's
  const long long b = blockIdx.x;
  const int* parent_N = parent_BN + b * N;
  const int count = checked_count(parent_N, node_count_B[b], N);
  if (threadIdx.x == 0) status_B[b] = count == 0;

  for (long long i = threadIdx.x; i < N; i += blockDim.x) size_N[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    for (int slot = i; slot != NO_NODE; slot = parent_N[slot]) atomicAdd(&size_N[slot], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    int step = i != ROOT;
    for (int j = parent_N[i] + 1; j < i; j++) {
      if (parent_N[j] == parent_N[i]) step += size_N[j];
    }
    step_N[i] = step;
  }
  __syncthreads();
  for (long long i = threadIdx.x; i < N; i += blockDim.x) {
    int pre = i < count ? 0 : -1;
    for (int slot = i < count ? (int)i : NO_NODE; slot != NO_NODE; slot = parent_N[slot]) pre += step_N[slot];
    pre_BN[b * N + i] = pre;
    size_BN[b * N + i] = size_N[i];
  }
}
