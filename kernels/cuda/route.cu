// route: one warp a row. Its scores and choices lie in shared memory, the best are picked one after another.
#include "reals.cuh"

constexpr unsigned ALL = 0xffffffffu;
constexpr int LANES = 32;

struct Pick {
  REAL value;
  int index;
};

// The order of picks: largest value first, equal values by index. No value is NaN.
__device__ inline bool before(Pick a, Pick b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

__device__ inline REAL number(REAL value) { return value == value ? value : -infinity(); }

// Return the first pick of `count` values that comes behind `last`, to all lanes.
__device__ inline Pick next_pick(const REAL* value_K, int count, Pick last) {
  Pick best = {-infinity(), count};
  for (int k = threadIdx.x; k < count; k += LANES) {
    const Pick one = {value_K[k], k};
    if (before(last, one) && before(one, best)) best = one;
  }
  for (int step = LANES / 2; step > 0; step /= 2) {
    const Pick other = {__shfl_xor_sync(ALL, best.value, step), __shfl_xor_sync(ALL, best.index, step)};
    if (before(other, best)) best = other;
  }
  return best;
}

__device__ inline Pick first_pick() { return {infinity(), -1}; }  // comes before all

// Turn logits into scores; return whether one is NaN.
__device__ inline bool find_scores(const REAL* logit_E, int E, int softmax, REAL* score_E) {
  bool bad = false;
  REAL largest = -infinity(), sum = 0;
  for (int e = threadIdx.x; e < E; e += LANES) {
    bad |= logit_E[e] != logit_E[e];
    largest = max(largest, logit_E[e]);
  }
  for (int step = LANES / 2; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(ALL, largest, step));
  for (int e = threadIdx.x; e < E; e += LANES) {
    score_E[e] = softmax ? exponential(logit_E[e] - largest) : 1 / (1 + exponential(-logit_E[e]));
    sum += score_E[e];
  }
  for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
  for (int e = threadIdx.x; softmax && e < E; e += LANES) score_E[e] /= sum;
  return __any_sync(ALL, bad);
}

// Return the sum of the two largest of a group's choices, or the only one.
__device__ inline REAL best_two(const REAL* choice_J, int J) {
  REAL best = -infinity(), second = -infinity();
  for (int j = 0; j < J; j++) {
    if (choice_J[j] > best) second = best, best = choice_J[j];
    else second = max(second, choice_J[j]);
  }
  return J == 1 ? best : number(second + best);
}

// Set the choices of all but the best groups to -infinity.
__device__ inline void keep_groups(REAL* choice_E, int E, int n_group, int topk_group, REAL* group_G) {
  const int J = E / n_group;
  for (int g = threadIdx.x; g < n_group; g += LANES) group_G[g] = best_two(choice_E + g * J, J);
  __syncwarp();
  Pick last = first_pick();
  for (int k = 0; k < topk_group; k++) last = next_pick(group_G, n_group, last);
  for (int e = threadIdx.x; e < E; e += LANES)
    if (before(last, {group_G[e / J], e / J})) choice_E[e] = -infinity();
}

extern "C" __global__ void route(const REAL* logit_TE, const REAL* bias_E, int E, int top_k, int n_group,
                                 int topk_group, int normalise, REAL scale, int softmax, int* expert_TK,
                                 REAL* weight_TK, int* status_T) {
  extern __shared__ REAL shared[];
  REAL *score_E = shared, *choice_E = shared + E, *group_G = shared + 2 * E;
  const long long t = blockIdx.x;
  int* expert_K = expert_TK + t * top_k;
  REAL* weight_K = weight_TK + t * top_k;
  const bool bad = find_scores(logit_TE + t * E, E, softmax, score_E);
  if (threadIdx.x == 0) status_T[t] = bad;
  for (int e = threadIdx.x; e < E; e += LANES) choice_E[e] = number(softmax ? score_E[e] : score_E[e] + bias_E[e]);
  __syncwarp();
  if (!softmax && topk_group < n_group) keep_groups(choice_E, E, n_group, topk_group, group_G);
  __syncwarp();

  Pick last = first_pick();
  REAL sum = 0;
  for (int k = 0; k < top_k; k++) {
    last = next_pick(choice_E, E, last);
    sum += score_E[last.index];
    if ((int)threadIdx.x == k % LANES) expert_K[k] = last.index;
  }
  for (int k = threadIdx.x; k < top_k; k += LANES) {  // a lane reads what it wrote
    const REAL score = score_E[expert_K[k]];
    weight_K[k] = (normalise ? score / (sum + (REAL)1e-20) : score) * scale;
  }
}
