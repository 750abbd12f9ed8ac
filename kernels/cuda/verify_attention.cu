// verify_attention: a block attends from a tile of rows to a span of keys; then a block a row merges its spans.
//
// A row is a head of a slot, slot H + head, and all rows share the cache: a tile of keys is staged once, as keys and as
// values of all rows of the block. A row counts the keys that it sees: the prefix, then its slots. Tiles and spans are
// runs of that count, and sums over lanes, tiles and spans have one order, so a row's bits depend on its query, the
// keys that it sees and the span, on nothing beside it. Tiles of the prefix are the same for all rows of a block; those
// that hold slots are staged for each slot's rows in turn, without what the slot does not see.
#include "reals.cuh"
#include "halves.cuh"

// Macros: REAL, INPUT, ROWS_A_WARP, KEYS of a tile, X_TWOS = C + R in 64s and C_FOURS = C in 128s, both rounded up.
constexpr int LANES = 32, WARPS = 8, ROWS_A_BLOCK = WARPS * ROWS_A_WARP;
constexpr int SUMS = 16, AT_ONCE = SUMS / ROWS_A_WARP;                     // scores, and keys, at once
constexpr int WIDTH = X_TWOS > 2 * C_FOURS ? 64 * X_TWOS : 128 * C_FOURS;  // of a staged key
constexpr unsigned ALL = 0xffffffffu;

struct alignas(2 * sizeof(REAL)) Two { REAL at[2]; };
struct alignas(16) Four { REAL at[4]; };
struct alignas(ROWS_A_WARP * sizeof(REAL) < 16 ? ROWS_A_WARP * sizeof(REAL) : 16) Weights { REAL of[ROWS_A_WARP]; };

struct Rows {  // what a warp knows of its rows
  Two query[ROWS_A_WARP][X_TWOS];    // elements 64 x + 2 lane and the next
  Four mixed[ROWS_A_WARP][C_FOURS];  // elements 128 c + 4 lane and the next three
  REAL peak[ROWS_A_WARP], sum[ROWS_A_WARP];  // of scores, and of exp(score - peak); the same in all lanes
};

struct Tile {  // of keys, in shared memory
  REAL* key_KX;
  Weights* weight_K;  // of this warp: scores, then weights
  long long* row_K;   // of the cache; behind them stands how many there are
};

__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

__device__ inline bool fits(long long prefix, long long count, long long N, long long S) {
  return count >= 1 && count <= N && prefix >= 0 && prefix + count <= S;
}

// List a slot's keys from number `first` on, as many as a tile takes. One warp calls it.
__device__ inline void list_keys(const bool* visible_N, int count, long long prefix, long long first,
                                 long long* row_K) {
  const int lane = threadIdx.x % LANES;
  if (lane < KEYS && first + lane < prefix) row_K[lane] = first + lane;
  long long seen = prefix;
  for (int start = 0; start < count && seen < first + KEYS; start += LANES) {
    const int i = start + lane;
    const bool sees = i < count && visible_N[i];
    const unsigned all = __ballot_sync(ALL, sees);
    const long long k = seen + __popc(all & ((1u << lane) - 1)) - first;
    if (sees && k >= 0 && k < KEYS) row_K[k] = prefix + i;
    seen += __popc(all);
  }
  if (lane == 0) row_K[KEYS] = max(0LL, min(seen - first, (long long)KEYS));
}

// Copy the keys of the list, once it is whole and the tile before is done with, and return how many there are.
__device__ inline int stage(const INPUT* kv_SX, long long X, const Tile& tile) {
  __syncthreads();
  const int count = (int)tile.row_K[KEYS];
  for (int k = threadIdx.x / LANES; k < count; k += WARPS) {
    const INPUT* row_X = kv_SX + tile.row_K[k] * X;
#pragma unroll 8
    for (long long x = threadIdx.x % LANES; x < X; x += LANES) tile.key_KX[k * WIDTH + x] = value(row_X[x]);
  }
  __syncthreads();
  return count;
}

// Add the sums of all lanes, partners 16, 8, 4, 2 and 1 lanes apart; lanes 2 k and 2 k + 1 get the total of sum k.
__device__ __forceinline__ REAL add_lanes(REAL (&sum_K)[SUMS]) {
#pragma unroll
  for (int step = 2; step <= SUMS; step *= 2) {
    const int half = SUMS / step;
    const bool upper = threadIdx.x & (2 * half);
#pragma unroll
    for (int k = 0; k < half; k++) {
      const REAL low = sum_K[k], high = sum_K[k + half];
      sum_K[k] = (upper ? high : low) + __shfl_xor_sync(ALL, upper ? low : high, 2 * half);
    }
  }
  return sum_K[0] + __shfl_xor_sync(ALL, sum_K[0], 1);
}

__device__ __forceinline__ void form_scores(const Rows& my, const Tile& tile, int count, REAL scale) {
  const int lane = threadIdx.x % LANES;
#pragma unroll 1
  for (int first = 0; first < count; first += AT_ONCE) {
    REAL sum_K[SUMS] = {};
#pragma unroll
    for (int x = 0; x < X_TWOS; x++) {
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {  // past the last key the tile has stale numbers, whose scores nobody reads
        const Two key = *(const Two*)&tile.key_KX[(first + k % KEYS) * WIDTH + 64 * x + 2 * lane];
#pragma unroll
        for (int r = 0; r < ROWS_A_WARP; r++) {
          REAL& sum = sum_K[r * AT_ONCE + k];
          sum = multiply_add(my.query[r][x].at[1], key.at[1], multiply_add(my.query[r][x].at[0], key.at[0], sum));
        }
      }
    }
    const REAL score = add_lanes(sum_K) * scale;
    const int k = first + lane / 2 % AT_ONCE;
    if (lane % 2 == 0 && k < count) tile.weight_K[k].of[lane / 2 / AT_ONCE] = score;
  }
  __syncwarp();
}

// Turn the scores of a row into weights, and return what its mixture so far is to be multiplied by.
__device__ __forceinline__ REAL weigh(Rows& my, int r, const Tile& tile, int count) {
  const int lane = threadIdx.x % LANES;
  const REAL score = lane < count ? tile.weight_K[lane].of[r] : -infinity();
  REAL peak = max(my.peak[r], score);
#pragma unroll
  for (int half = LANES / 2; half > 0; half /= 2) peak = max(peak, __shfl_xor_sync(ALL, peak, half));
  const REAL shift = peak == -infinity() ? 0 : peak;
  const REAL weight = exponential(score - shift), faded = exponential(my.peak[r] - shift);
  REAL sum = weight;
#pragma unroll
  for (int half = LANES / 2; half > 0; half /= 2) sum += __shfl_xor_sync(ALL, sum, half);
  if (lane < count) tile.weight_K[lane].of[r] = weight;
  my.sum[r] = multiply_add(my.sum[r], faded, sum);
  my.peak[r] = peak;
  return faded;
}

// Let those of a warp's rows whose bit is set attend to a tile. Each tile's mixture is summed by itself, for accuracy.
__device__ __forceinline__ void attend(Rows& my, unsigned rows, const Tile& tile, int count, REAL scale) {
  form_scores(my, tile, count, scale);
  REAL faded[ROWS_A_WARP] = {};
#pragma unroll
  for (int r = 0; r < ROWS_A_WARP; r++)
    if (rows >> r & 1) faded[r] = weigh(my, r, tile, count);
  __syncwarp();
#pragma unroll
  for (int c = 0; c < C_FOURS; c++) {
    Four of_tile[ROWS_A_WARP] = {};
#pragma unroll 4
    for (int k = 0; k < count; k++) {
      const Four latent = *(const Four*)&tile.key_KX[k * WIDTH + 128 * c + 4 * (threadIdx.x % LANES)];
      const Weights weight = tile.weight_K[k];
#pragma unroll
      for (int r = 0; r < ROWS_A_WARP; r++)
#pragma unroll
        for (int e = 0; e < 4; e++) of_tile[r].at[e] = multiply_add(weight.of[r], latent.at[e], of_tile[r].at[e]);
    }
#pragma unroll
    for (int r = 0; r < ROWS_A_WARP; r++) {
      if (!(rows >> r & 1)) continue;  // its weights are none
#pragma unroll
      for (int e = 0; e < 4; e++) my.mixed[r][c].at[e] = multiply_add(my.mixed[r][c].at[e], faded[r], of_tile[r].at[e]);
    }
  }
  __syncwarp();  // the weights are read
}

// Read the queries of the rows whose bit is set, the others as zeros.
__device__ __forceinline__ void begin_rows(Rows& my, unsigned rows, const INPUT* q_latent_RC, const INPUT* q_rope_RR,
                                           long long C, long long R) {
#pragma unroll
  for (int r = 0; r < ROWS_A_WARP; r++) {
    my.peak[r] = -infinity(), my.sum[r] = 0;
#pragma unroll
    for (int c = 0; c < C_FOURS; c++) my.mixed[r][c] = {};
#pragma unroll
    for (int x = 0; x < X_TWOS; x++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const long long i = 64 * x + 2 * (threadIdx.x % LANES) + e;
        REAL element = 0;
        if (rows >> r & 1 && i < C + R) element = value(i < C ? q_latent_RC[r * C + i] : q_rope_RR[r * R + i - C]);
        my.query[r][x].at[e] = element;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(LANES* WARPS)
verify_attention_spans(const INPUT* q_latent_BNHC, const INPUT* q_rope_BNHR, const INPUT* kv_BSX,
                       const int* prefix_len_B, const bool* visible_BNN, const int* node_count_B, REAL scale,
                       long long N, long long H, long long C, long long R, long long S, long long span,
                       REAL* mixed_BGTC, REAL* peak_BGT, REAL* sum_BGT, int* status_B) {
  extern __shared__ __align__(16) REAL shared[];
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, count = node_count_B[blockIdx.z];
  const long long b = blockIdx.z, T = N * H, prefix = prefix_len_B[b];
  const bool good = fits(prefix, count, N, S);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) status_B[b] = !good;
  const long long real = good ? count * H : 0, of_block = (long long)blockIdx.x * ROWS_A_BLOCK;
  if (of_block >= real) return;

  const long long row = of_block + warp * ROWS_A_WARP;
  unsigned rows = 0;
  for (int r = 0; r < ROWS_A_WARP; r++) rows |= unsigned(row + r < real) << r;
  Rows my;
  begin_rows(my, rows, q_latent_BNHC + (b * T + row) * C, q_rope_BNHR + (b * T + row) * R, C, R);
  Weights* weight_WK = (Weights*)(shared + KEYS * WIDTH);
  const Tile tile = {shared, weight_WK + warp * KEYS, (long long*)(weight_WK + WARPS * KEYS)};
  for (int i = threadIdx.x; i < KEYS * WIDTH; i += blockDim.x) tile.key_KX[i] = 0;  // for products past X

  const INPUT* kv_SX = kv_BSX + b * S * (C + R);
  const long long begin = blockIdx.y * span, end = begin + span, whole = prefix - prefix % KEYS;
  const long long first_slot = of_block / H, last_slot = (min(of_block + ROWS_A_BLOCK, real) - 1) / H;
  for (long long slot = first_slot - 1; slot <= last_slot; slot++) {  // first, for all rows, prefix alone
    const bool all = slot < first_slot;
    unsigned attending = 0;
    for (int r = 0; r < ROWS_A_WARP; r++) attending |= unsigned(all || (row + r) / H == slot) << r;
    attending &= rows;
    for (long long first = all ? begin : max(begin, whole); first < (all ? min(end, whole) : end); first += KEYS) {
      if (warp == 0) list_keys(visible_BNN + (b * N + max(slot, 0LL)) * N, count, prefix, first, tile.row_K);
      const int keys = stage(kv_SX, C + R, tile);
      if (keys == 0) break;
      if (attending) attend(my, attending, tile, keys, scale);
    }
  }

#pragma unroll
  for (int r = 0; r < ROWS_A_WARP; r++) {
    if (!(rows >> r & 1)) continue;
    const long long part = (b * gridDim.y + blockIdx.y) * T + row + r;
    if (lane == 0) peak_BGT[part] = my.peak[r], sum_BGT[part] = my.sum[r];
    if (my.sum[r] == 0) continue;
#pragma unroll
    for (int c = 0; c < C_FOURS; c++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (128 * c + 4 * lane + e < C) mixed_BGTC[part * C + 128 * c + 4 * lane + e] = my.mixed[r][c].at[e];
  }
}

// Spans in which a row sees nothing are skipped: adding one changes no bit.
extern "C" __global__ void verify_attention_merge(const REAL* mixed_BGTC, const REAL* peak_BGT, const REAL* sum_BGT,
                                                  const int* prefix_len_B, const int* node_count_B, long long N,
                                                  long long H, long long C, long long S, long long G,
                                                  REAL* latent_BNHC, REAL* lse_BNH) {
  const long long b = blockIdx.y, t = blockIdx.x, T = N * H, count = node_count_B[b];
  const REAL *mixed_GTC = mixed_BGTC + b * G * T * C, *peak_GT = peak_BGT + b * G * T, *sum_GT = sum_BGT + b * G * T;
  const long long spans = fits(prefix_len_B[b], count, N, S) && t < count * H ? G : 0;

  REAL peak = -infinity(), sum = 0;
  for (long long g = 0; g < spans; g++) peak = max(peak, peak_GT[g * T + t]);
  for (long long g = 0; g < spans; g++)
    if (sum_GT[g * T + t] != 0) sum = multiply_add(sum_GT[g * T + t], exponential(peak_GT[g * T + t] - peak), sum);
  for (long long c = threadIdx.x; c < C; c += blockDim.x) {
    REAL mixed = 0;
    for (long long g = 0; g < spans; g++) {
      if (sum_GT[g * T + t] == 0) continue;
      mixed = multiply_add(mixed_GTC[(g * T + t) * C + c], exponential(peak_GT[g * T + t] - peak), mixed);
    }
    latent_BNHC[(b * T + t) * C + c] = sum == 0 ? 0 : mixed / sum;
  }
  if (threadIdx.x == 0) lse_BNH[b * T + t] = sum == 0 ? -infinity() : peak + logarithm(sum);
}
