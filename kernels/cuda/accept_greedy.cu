// accept_greedy: one block a tree. All threads check the links, then one walks.
#include "tree.cuh"

// Count a link of slot i; return whether it leads neither nowhere nor to a later real slot.
__device__ inline bool count_link(int link, int i, int count, int* led_to_N) {
  if (link == NO_NODE) return false;
  if (link <= i || link >= count) return true;
  atomicAdd(&led_to_N[link], 1);
  return false;
}

extern "C" __global__ void accept_greedy(const int* token_BN, const int* first_child_BN, const int* next_sibling_BN,
                                         const int* node_count_B, const int* target_token_BN, long long N, int* path_BN,
                                         int* accept_len_B, int* bonus_B, int* status_B) {
  extern __shared__ int led_to_N[];
  const long long b = blockIdx.x;
  const int *token_N = token_BN + b * N, *target_token_N = target_token_BN + b * N;
  const int *first_child_N = first_child_BN + b * N, *next_sibling_N = next_sibling_BN + b * N;
  int* path_N = path_BN + b * N;
  int count = node_count_B[b];
  if (count < 1 || count > N) count = 0;
  bool bad = count == 0 || next_sibling_N[ROOT] != NO_NODE;

  for (long long i = threadIdx.x; i < N; i += blockDim.x) {
    led_to_N[i] = i == ROOT;  // by nothing in the tree
    path_N[i] = NO_NODE;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    bad |= count_link(first_child_N[i], i, count, led_to_N);
    bad |= count_link(next_sibling_N[i], i, count, led_to_N);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) bad |= led_to_N[i] != 1;
  bad = __syncthreads_or(bad);
  if (threadIdx.x != 0) return;

  int length = 0, bonus = 0, slot = bad ? NO_NODE : ROOT;
  while (slot != NO_NODE) {
    path_N[length++] = slot;
    bonus = target_token_N[slot];
    slot = first_child_N[slot];
    while (slot != NO_NODE && token_N[slot] != bonus) slot = next_sibling_N[slot];
  }
  accept_len_B[b] = length;
  bonus_B[b] = bonus;
  status_B[b] = bad;
}
