// A row that the threads of a block share.
#pragma once

// Call f(v, row_V[v]) for the entries of this thread, in their order; AHEAD loads run together, for a block is alone
// on its multiprocessor and nothing else hides how long one takes.
template <int AHEAD, class Number, class Function>
__device__ inline void for_each(const Number* row_V, long long V, Function f) {
  for (long long start = threadIdx.x; start < V; start += (long long)AHEAD * blockDim.x) {
    Number number_A[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const long long v = start + a * blockDim.x;
      number_A[a] = v < V ? row_V[v] : Number(0);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const long long v = start + a * blockDim.x;
      if (v < V) f(v, number_A[a]);
    }
  }
}
