// top_k: one block a row. At least k logits are as large as the k-th largest of the threads' own maxima, and seldom
// many more: those are collected in shared memory and sorted. Where they do not fit, a radix select narrows them first.
//
// An entry is ranked by its logit, equal ones by the lower token. So no two ranks are equal, and the order in which
// threads collect does not matter.
#include "order.cuh"
#include "reals.cuh"
#include "rows.cuh"

using Order = decltype(order_of(REAL()));
constexpr int ORDER_DIGITS = sizeof(Order), DIGITS = ORDER_DIGITS + 4, BINS = 256;  // a digit is a byte
constexpr int MOST_THREADS = 4096 / sizeof(REAL);  // exp of doubles takes more registers than 1024 threads can have

struct Rank {
  Order order;    // of the logit
  unsigned late;  // the complement of the token
};

struct Entries {  // in shared memory
  Order* order;
  unsigned* late;
  int capacity;
};

struct Scratch {  // in shared memory
  int count_of_bin[BINS], bin, above, found;
  REAL number_of_warp[32];
  double log_sum;
};

__device__ inline bool is_before(Rank a, Rank b) { return a.order == b.order ? a.late < b.late : a.order < b.order; }

__device__ inline unsigned digit(Rank rank, int d) {
  const int order_shift = 8 * (ORDER_DIGITS - 1 - d), late_shift = 8 * (DIGITS - 1 - d);
  return (d < ORDER_DIGITS ? (unsigned)(rank.order >> order_shift) : rank.late >> late_shift) % BINS;
}

// Combine the numbers of all threads, in one order, for every thread.
template <class Combine>
__device__ REAL over_threads(REAL number, Scratch& scratch, Combine combine) {
  for (int bit = 16; bit > 0; bit /= 2) number = combine(number, __shfl_xor_sync(0xffffffffu, number, bit));
  if (threadIdx.x % 32 == 0) scratch.number_of_warp[threadIdx.x / 32] = number;
  __syncthreads();
  REAL all = scratch.number_of_warp[0];
  for (int warp = 1; warp < (int)blockDim.x / 32; warp++) all = combine(all, scratch.number_of_warp[warp]);
  __syncthreads();
  return all;
}

// Sort entries, the last rank first; their number is a power of two.
__device__ inline void sort(const Entries& entries, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size; i += blockDim.x) {
        const int j = i ^ step;
        const Rank a = {entries.order[i], entries.late[i]}, b = {entries.order[j], entries.late[j]};
        if (j < i || is_before(a, b) != ((i & run) == 0)) continue;
        entries.order[i] = b.order, entries.late[i] = b.late;
        entries.order[j] = a.order, entries.late[j] = a.late;
      }
    }
  }
  __syncthreads();
}

// Collect the ranks from `least` on, as many as fit, and return their number; add up the weights of the whole row.
__device__ inline int collect(const REAL* logit_V, long long V, Rank least, REAL peak, const Entries& entries,
                              Scratch& scratch, REAL& weight) {
  __syncthreads();
  if (threadIdx.x == 0) scratch.found = 0;
  __syncthreads();
  weight = 0;
  for_each<32 / sizeof(REAL)>(logit_V, V, [&](long long v, REAL logit) {
    const Rank rank = {order_of(logit), ~(unsigned)v};
    weight += exponential(logit - peak);
    if (is_before(rank, least)) return;
    const int place = atomicAdd(&scratch.found, 1);
    if (place < entries.capacity) entries.order[place] = rank.order, entries.late[place] = rank.late;
  });
  weight = over_threads(weight, scratch, [](REAL a, REAL b) { return a + b; });
  return scratch.found;
}

// Return a later rank than `least`, from which there are at least k and at most `capacity` ranks.
__device__ inline Rank narrow(const REAL* logit_V, long long V, Rank least, int k, int capacity, Scratch& scratch) {
  Rank prefix = {0, 0};
  int above = 0;  // ranks that are later than all with this prefix
  for (int d = 0, reached = 0x7fffffff; reached > capacity; d++) {
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) scratch.count_of_bin[bin] = 0;
    __syncthreads();
    for_each<16 / sizeof(REAL)>(logit_V, V, [&](long long v, REAL logit) {
      const Rank rank = {order_of(logit), ~(unsigned)v};
      bool counts = !is_before(rank, least);
      for (int e = 0; counts && e < d; e++) counts = digit(rank, e) == digit(prefix, e);
      if (counts) atomicAdd(&scratch.count_of_bin[digit(rank, d)], 1);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = BINS - 1;
      for (; above + scratch.count_of_bin[bin] < k; bin--) above += scratch.count_of_bin[bin];
      scratch.bin = bin, scratch.above = above;
    }
    __syncthreads();
    above = scratch.above;
    reached = above + scratch.count_of_bin[scratch.bin];
    if (d < ORDER_DIGITS) prefix.order |= (Order)scratch.bin << 8 * (ORDER_DIGITS - 1 - d);
    else prefix.late |= (unsigned)scratch.bin << 8 * (DIGITS - 1 - d);
    __syncthreads();
  }
  return is_before(prefix, least) ? least : prefix;
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)
    top_k(const REAL* logit_TV, long long V, int k, int capacity, REAL* logprob_TK, int* token_TK, int* status_T) {
  extern __shared__ unsigned long long memory[];
  __shared__ Scratch scratch;
  const long long t = blockIdx.x;
  const REAL* logit_V = logit_TV + t * V;
  const Entries entries = {(Order*)memory, (unsigned*)((Order*)memory + capacity), capacity};
  REAL* logprob_K = logprob_TK + t * k;
  int* token_K = token_TK + t * k;

  REAL largest = -infinity();
  bool bad = false;
  for_each<64 / sizeof(REAL)>(logit_V, V, [&](long long, REAL logit) {
    bad |= !(logit < infinity());  // NaN too
    largest = logit > largest ? logit : largest;
  });
  const REAL peak = over_threads(largest, scratch, [](REAL a, REAL b) { return a > b ? a : b; });
  bad = __syncthreads_or(bad || peak == -infinity());
  if (threadIdx.x == 0) status_T[t] = bad;
  for (int i = threadIdx.x; bad && i < k; i += blockDim.x) token_K[i] = 0, logprob_K[i] = -infinity();
  if (bad) return;

  entries.order[threadIdx.x] = threadIdx.x < V ? order_of(largest) : 0;
  entries.late[threadIdx.x] = threadIdx.x;
  sort(entries, blockDim.x);
  Rank least = {k > 0 && k <= (int)blockDim.x ? entries.order[k - 1] : 0, 0};
  REAL weight;
  int found;
  while ((found = collect(logit_V, V, least, peak, entries, scratch, weight)) > capacity)
    least = narrow(logit_V, V, least, k, capacity, scratch);
  int size = 1;
  while (size < found) size *= 2;
  for (int i = found + (int)threadIdx.x; i < size; i += blockDim.x) entries.order[i] = 0, entries.late[i] = 0;
  if (threadIdx.x == 0) scratch.log_sum = (double)peak + log((double)weight);
  sort(entries, size);
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    token_K[i] = (int)~entries.late[i];
    logprob_K[i] = (REAL)((double)logit_V[token_K[i]] - scratch.log_sum);
  }
}
