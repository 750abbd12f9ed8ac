// tree_build: one block a tree. Its first warp grows the tree in shared memory, the others check the input meanwhile.
//
// The frontier holds one candidate a slot, the best of its children not yet taken, so a candidate is named by its
// parent. The slots are cut into 32 groups, and lane g holds the best of group g in registers. A pop takes the best of
// the lanes; it changes the candidates of two slots: one lane meets that of the new node, and the group of the parent
// is read again, one lane a slot.
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

// Compare the candidates of slots a and b by their ranks from the root; a prefix is before its extensions.
__device__ inline bool has_smaller_ranks(const Tree& tree, int a, int b) {
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

// Let the candidate of a slot replace a worse one.
__device__ inline void meet(const Tree& tree, int slot, Best& best) {
  const unsigned long long order = order_of(tree.candidate_N[slot]);
  if (order < best.order || order == 0) return;
  if (order > best.order || has_smaller_ranks(tree, slot, best.slot)) best = {order, slot};
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
  Best mine = {0, ROOT};
  double logw = -0.0;  // of the node that came last, at first the root's: -0.0 + x is x
  int depth = 0;
  for (int node = ROOT;; node++) {
    double child = none();
    if (depth < L && width > 0 && logprob_LK[depth * K] > -infinity()) child = __dadd_rn(logw, logprob_LK[depth * K]);
    if (lane == 0) tree.depth_N[node] = depth, tree.candidate_N[node] = child, tree.next_rank_N[node] = 0;
    __syncwarp();
    if (lane == node >> shift) meet(tree, node, mine);
    const Best top = best_of(tree, mine);
    if (node == budget || top.order == 0) return node + 1;

    const int parent = top.slot, rank = tree.next_rank_N[parent], group = parent >> shift;
    logw = tree.candidate_N[parent];
    depth = tree.depth_N[parent] + 1;
    const REAL* logprob_K = logprob_LK + (depth - 1) * K;
    double sibling = none();
    if (rank + 1 < width && logprob_K[rank + 1] > -infinity())
      sibling = __dadd_rn(__dsub_rn(logw, logprob_K[rank]), logprob_K[rank + 1]);
    __syncwarp();
    if (lane == 0) {
      tree.candidate_N[parent] = sibling, tree.next_rank_N[parent] = rank + 1;
      tree.parent_N[node + 1] = parent, tree.rank_N[node + 1] = rank, logw_N[node + 1] = logw;
    }
    __syncwarp();
    Best found = {0, ROOT};
    for (int slot = (group << shift) + lane; slot <= node && slot >> shift == group; slot += 32)
      meet(tree, slot, found);
    found = best_of(tree, found);
    if (lane == group) mine = found;
  }
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
