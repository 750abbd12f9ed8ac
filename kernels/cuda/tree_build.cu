// tree_build: one block a tree. Its first warp grows the tree in shared memory, the others check the input meanwhile.
//
// The frontier holds one candidate a slot, the best of its children not yet taken, so a candidate is named by its
// parent. The slots are cut into 32 groups, and lane g holds the best of group g in registers. A pop takes the best of
// all; it changes the candidates of two slots: the group of the parent is read again, one lane a slot, and the lane of
// the new node's group compares that one's.
//
// A pop waits for the one before, so its latency is all that counts: loads start before what does not need them, and
// the comparison of equal weights, which is rare, is a call, so that the loop stays in the instruction cache.
#include "order.cuh"
#include "reals.cuh"
#include "tree.cuh"

constexpr unsigned WARP = 0xffffffffu;

struct Tree {  // in shared memory
  double* candidate_N;  // logw of the slot's candidate, or none()
  int *next_rank_N, *parent_N, *rank_N, *depth_N;
};

struct Best {
  unsigned long long order;  // of the candidate's logw; 0: there is none
  int slot;
};

// Return the NaN whose order is 0: it comes after -inf, which a sum of finite log-probs may be.
__device__ inline double none() { return __longlong_as_double(-1); }

// Compare the candidates of slots a and b by their ranks from the root; a prefix is before its extensions. The tree
// comes by value: a reference to it would keep its pointers in memory.
__device__ __noinline__ bool has_smaller_ranks(Tree tree, int a, int b) {
  int rank_a = tree.next_rank_N[a], rank_b = tree.next_rank_N[b];
  const int depth_a = tree.depth_N[a], depth_b = tree.depth_N[b];
  for (int up = depth_a; up > depth_b; up--) rank_a = tree.rank_N[a], a = tree.parent_N[a];
  for (int up = depth_b; up > depth_a; up--) rank_b = tree.rank_N[b], b = tree.parent_N[b];
  while (a != b) {
    rank_a = tree.rank_N[a], a = tree.parent_N[a];
    rank_b = tree.rank_N[b], b = tree.parent_N[b];
  }
  return rank_a == rank_b ? depth_a < depth_b : rank_a < rank_b;
}

// Return the one of two candidates that is taken first; of two that are none, either.
__device__ inline Best better(const Tree& tree, Best a, Best b) {
  bool is_a = a.order > b.order;
  if (a.order == b.order && a.order != 0) is_a = has_smaller_ranks(tree, a.slot, b.slot);
  return is_a ? a : b;
}

// Return the best of the lanes to every lane. The upper halves of the weights nearly always decide.
__device__ inline Best best_of(const Tree& tree, Best mine) {
  const int lane = threadIdx.x;
  const unsigned upper = (unsigned)(mine.order >> 32), largest = __reduce_max_sync(WARP, upper);
  if (largest == 0) return {0, ROOT};
  unsigned tied = __ballot_sync(WARP, upper == largest);
  if (tied & (tied - 1)) {
    const unsigned lower = tied >> lane & 1 ? (unsigned)mine.order : 0;
    tied &= __ballot_sync(WARP, lower == __reduce_max_sync(WARP, lower));
  }
  while (tied & (tied - 1)) {  // of equal weights, only those whose ranks are smaller than the first's remain
    const int first = __ffs(tied) - 1, rival = __shfl_sync(WARP, mine.slot, first);
    const unsigned smaller = __ballot_sync(WARP, tied >> lane & 1 && has_smaller_ranks(tree, mine.slot, rival));
    tied = smaller ? smaller : 1u << first;
  }
  const int from = __ffs(tied) - 1;
  const unsigned lower = __shfl_sync(WARP, (unsigned)mine.order, from);
  return {(unsigned long long)largest << 32 | lower, __shfl_sync(WARP, mine.slot, from)};
}

// Grow a tree with the lanes of a warp and return its node count; logw_N gets the weights of all nodes but the root.
__device__ inline int grow(const Tree& tree, const REAL* logprob_LK, long long L, long long K, int budget,
                           double* logw_N) {
  const int lane = threadIdx.x, width = K < budget ? (int)K : budget;
  int shift = 5;  // a group has 1 << shift slots
  while (32ll << shift <= budget) shift++;
  const double first = L > 0 && width > 0 && logprob_LK[0] > -infinity() ? (double)logprob_LK[0] : none();
  if (lane == 0) tree.depth_N[ROOT] = 0, tree.candidate_N[ROOT] = first, tree.next_rank_N[ROOT] = 0;
  __syncwarp();

  Best top = {order_of(first), ROOT}, mine = {lane == 0 ? top.order : 0, ROOT};
  Best found = mine;  // by this lane in the group that was read last, of which `mine` may be out of date
  int group = 0, node = 1;
  for (; node <= budget && top.order != 0; node++) {
    const int parent = top.slot, rank = tree.next_rank_N[parent], depth = tree.depth_N[parent] + 1;
    const double logw = tree.candidate_N[parent];
    const REAL* logprob_K = logprob_LK + (depth - 1) * K;
    const REAL own = logprob_K[rank], next = rank + 1 < width ? logprob_K[rank + 1] : -infinity();
    const REAL below = depth < L ? logprob_K[K] : -infinity();
    if (parent >> shift != group) {
      const Best of_group = best_of(tree, found);
      if (lane == group) mine = of_group;
      group = parent >> shift;
    }
    const double sibling = next > -infinity() ? __dadd_rn(__dsub_rn(logw, own), next) : none();
    const double child = below > -infinity() ? __dadd_rn(logw, below) : none();
    int slot = (group << shift) + lane;
    double candidate = slot < node ? tree.candidate_N[slot] : none();
    candidate = slot == parent ? sibling : slot == node ? child : candidate;
    __syncwarp();
    if (lane == 0) {
      tree.candidate_N[parent] = sibling, tree.next_rank_N[parent] = rank + 1;
      tree.candidate_N[node] = child, tree.next_rank_N[node] = 0;
      tree.parent_N[node] = parent, tree.rank_N[node] = rank, tree.depth_N[node] = depth, logw_N[node] = logw;
    }
    __syncwarp();
    found = {order_of(candidate), slot};
    for (slot += 32; slot <= node && slot >> shift == group; slot += 32)
      found = better(tree, found, {order_of(tree.candidate_N[slot]), slot});
    if (lane == node >> shift && lane != group) mine = better(tree, mine, {order_of(child), node});
    top = best_of(tree, lane == group ? found : better(tree, found, mine));
  }
  return node;
}

// Tell whether this thread, of `threads`, finds a value that no row of candidates may have.
__device__ inline bool is_bad(const REAL* logprob_LK, const int* token_LK, long long L, long long K, int thread,
                              int threads) {
  bool bad = false;
  for (long long d = thread / 32; d < L; d += threads / 32) {
    const REAL* logprob_K = logprob_LK + d * K;
#pragma unroll 4
    for (long long r = thread % 32; r < K; r += 32) {
      const bool in_order = r == 0 ? logprob_K[r] < infinity() : logprob_K[r] <= logprob_K[r - 1];  // false for NaN
      bad |= !in_order || token_LK[d * K + r] < 0;
    }
  }
  return bad;
}

extern "C" __global__ void tree_build(const int* root_token_B, const REAL* logprob_BLK, const int* token_BLK,
                                      long long L, long long K, int budget, int pad_token, int* token_BN, int* depth_BN,
                                      int* parent_BN, int* rank_BN, double* logw_BN, int* node_count_B, int* status_B) {
  extern __shared__ double candidate_N[];
  __shared__ int grown;
  const long long b = blockIdx.x, N = (long long)budget + 1;
  const REAL* logprob_LK = logprob_BLK + b * L * K;
  const int* token_LK = token_BLK + b * L * K;
  int* ints = (int*)(candidate_N + N);
  const Tree tree = {candidate_N, ints, ints + N, ints + 2 * N, ints + 3 * N};

  bool bad = root_token_B[b] < 0;
  if (threadIdx.x < 32) {
    const int count = grow(tree, logprob_LK, L, K, budget, logw_BN + b * N);
    if (threadIdx.x == 0) grown = count;
  } else {
    bad |= is_bad(logprob_LK, token_LK, L, K, threadIdx.x - 32, blockDim.x - 32);
  }
  bad = __syncthreads_or(bad);
  const int count = bad ? 1 : grown;
  if (threadIdx.x == 0) node_count_B[b] = count, status_B[b] = bad;

  for (long long i = threadIdx.x; i < N; i += blockDim.x) {
    const bool is_node = i != ROOT && i < count;
    const int depth = is_node ? tree.depth_N[i] : 0, rank = is_node ? tree.rank_N[i] : NO_NODE;
    token_BN[b * N + i] = is_node ? token_LK[(depth - 1) * K + rank] : i == ROOT ? root_token_B[b] : pad_token;
    depth_BN[b * N + i] = depth;
    parent_BN[b * N + i] = is_node ? tree.parent_N[i] : NO_NODE;
    rank_BN[b * N + i] = rank;
    if (!is_node) logw_BN[b * N + i] = i == ROOT ? 0.0 : -infinity();
  }
}
