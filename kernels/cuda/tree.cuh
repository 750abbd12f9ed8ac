// What kernels that read trees share.
#pragma once

constexpr int ROOT = 0, NO_NODE = -1;

// Return the number of real slots, or 0 if the count or a parent is out of range; every thread of the block calls it.
__device__ inline int checked_count(const int* parent_N, int count, long long N) {
  int bad = count < 1 || count > N;
  for (int i = threadIdx.x; !bad && i < count; i += blockDim.x) {
    const int parent = parent_N[i];
    bad = i == ROOT ? parent != NO_NODE : parent < ROOT || parent >= i;
  }
  return __syncthreads_or(bad) ? 0 : count;
}
