// retrieve: one block a tree. A slot's first child is a minimum over its children; its next sibling is searched.
#include "tree.cuh"

extern "C" __global__ void retrieve(const int* parent_BN, const int* node_count_B, long long N, int* first_child_BN,
                                    int* next_sibling_BN, int* status_B) {
  const long long b = blockIdx.x;
  const int* parent_N = parent_BN + b * N;
  int* first_child_N = first_child_BN + b * N;
  int* next_sibling_N = next_sibling_BN + b * N;
  const int count = checked_count(parent_N, node_count_B[b], N);
  if (threadIdx.x == 0) status_B[b] = count == 0;

  for (long long i = threadIdx.x; i < N; i += blockDim.x) first_child_N[i] = NO_NODE;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int parent = parent_N[i];  // the root's is -1, and no other slot's
    if (i != ROOT) atomicMin((unsigned*)&first_child_N[parent], (unsigned)i);  // -1 is the largest unsigned
  }
  for (long long i = threadIdx.x; i < N; i += blockDim.x) {
    int sibling = NO_NODE;
    for (int j = (int)i + 1; i < count && j < count; j++) {
      if (parent_N[j] == parent_N[i]) {
        sibling = j;
        break;
      }
    }
    next_sibling_N[i] = sibling;
  }
}
