// moe: four kernels. The pairs of row and expert are put in order of experts; tiles of 8 pairs of one expert, and 32
// columns, go through gate and up, then through down; each row adds what its experts gave.
//
// A pair is t K + k. Pairs of experts that are not there are in no tile.
#include "reals.cuh"
#include "products.cuh"

// Sort the pairs, stably: a warp an expert, and one behind the last. start_E has E + 1 entries.
extern "C" __global__ void moe_sort(const int* expert_P, long long P, int E, int* pair_P, int* start_E) {
  const int lane = threadIdx.x % LANES, e = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
  if (e > E) return;
  int place = 0;
  for (long long first = 0; first < P; first += LANES) {
    const int expert = first + lane < P ? expert_P[first + lane] : E;
    place += __popc(__ballot_sync(0xffffffffu, expert >= 0 && expert < e));
  }
  if (lane == 0) start_E[e] = place;
  for (long long first = 0; e < E && first < P; first += LANES) {
    const bool mine = first + lane < P && expert_P[first + lane] == e;
    const unsigned lanes = __ballot_sync(0xffffffffu, mine);
    if (mine) pair_P[place + __popc(lanes & ((1u << lane) - 1))] = (int)(first + lane);
    place += __popc(lanes);
  }
}

// Up to ROWS pairs of one expert; past the last they repeat it.
struct Tile {
  int expert, count;
  long long pair_R[ROWS];
};

// Return the tile that begins at a place in the order of experts; its count is 0 if none begins there.
__device__ inline Tile tile_at(long long place, const int* expert_P, const int* pair_P, const int* start_E, int E) {
  Tile tile = {};
  if (place >= start_E[E]) return tile;
  tile.expert = expert_P[pair_P[place]];
  if ((place - start_E[tile.expert]) % ROWS != 0) return tile;
  const long long end = start_E[tile.expert + 1];
  tile.count = (int)min((long long)ROWS, end - place);
#pragma unroll
  for (int r = 0; r < ROWS; r++) tile.pair_R[r] = pair_P[min(place + r, end - 1)];
  return tile;
}

extern "C" __global__ void moe_gate_up(const REAL* x_TD, const int* expert_P, const int* pair_P, const int* start_E,
                                       const REAL* gate_EFD, const REAL* up_EFD, int E, int K, long long D, long long F,
                                       REAL* inner_PF) {
  const Tile tile = tile_at(blockIdx.x, expert_P, pair_P, start_E, E);
  const long long f = ((long long)blockIdx.y * blockDim.x + threadIdx.x) / LANES * COLUMNS;
  if (tile.count == 0 || f >= F) return;
  const REAL *x_R[ROWS], *weight_Q[COLUMNS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) x_R[r] = x_TD + tile.pair_R[r] / K * D;
  find_weights(gate_EFD + tile.expert * F * D, f, F, D, weight_Q);
  const REAL gate = products(x_R, weight_Q, D);
  find_weights(up_EFD + tile.expert * F * D, f, F, D, weight_Q);
  const REAL up = products(x_R, weight_Q, D);
  const int r = threadIdx.x % LANES / COLUMNS, q = threadIdx.x % COLUMNS;
  if (r < tile.count && f + q < F) inner_PF[pair_P[blockIdx.x + r] * F + f + q] = silu(gate) * up;
}

extern "C" __global__ void moe_down(const REAL* inner_PF, const int* expert_P, const int* pair_P, const int* start_E,
                                    const REAL* down_EDF, int E, long long F, long long D, REAL* out_PD) {
  const Tile tile = tile_at(blockIdx.x, expert_P, pair_P, start_E, E);
  const long long d = ((long long)blockIdx.y * blockDim.x + threadIdx.x) / LANES * COLUMNS;
  if (tile.count == 0 || d >= D) return;
  const REAL *inner_R[ROWS], *weight_Q[COLUMNS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) inner_R[r] = inner_PF + tile.pair_R[r] * F;
  find_weights(down_EDF + tile.expert * D * F, d, D, F, weight_Q);
  const REAL out = products(inner_R, weight_Q, F);
  const int r = threadIdx.x % LANES / COLUMNS, q = threadIdx.x % COLUMNS;
  if (r < tile.count && d + q < D) out_PD[pair_P[blockIdx.x + r] * D + d + q] = out;
}

// Add the outputs of a row's experts, in the order of their index; 0 where an expert is not there or comes twice.
extern "C" __global__ void moe_add(const REAL* out_PD, const int* expert_TK, const REAL* weight_TK, int E, int K,
                                   long long D, REAL* y_TD, int* status_T) {
  extern __shared__ int order_K[];
  const long long t = blockIdx.x;
  const int* expert_K = expert_TK + t * K;
  bool bad = false;
  for (int k = threadIdx.x; k < K; k += blockDim.x) {
    const int expert = expert_K[k];
    bad |= expert < 0 || expert >= E;
    int rank = 0;
    for (int other = 0; other < K; other++) {
      rank += expert_K[other] < expert || (expert_K[other] == expert && other < k);
      bad |= expert_K[other] == expert && other != k;
    }
    order_K[rank] = k;
  }
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) status_T[t] = bad;
  for (long long d = threadIdx.x; d < D; d += blockDim.x) {
    REAL sum = 0;
    for (int rank = 0; !bad && rank < K; rank++) {
      const long long pair = t * K + order_K[rank];
      sum += weight_TK[pair] * out_PD[pair * D + d];
    }
    y_TD[t * D + d] = sum;
  }
}
