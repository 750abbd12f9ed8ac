// What CUDA C++ adds to C++, for g++: keywords, indices, barriers, warp functions, atomics, vectors, arithmetic.
//
// Compile with -ffp-contract=off, for NVRTC gets --fmad=false: both then round every operation alike.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <type_traits>
#include <utility>

#include "fibers.h"

#define KDTREE_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __shared__ static __attribute__((section("host_shared")))  // in the kernel itself, where it is no template

#define threadIdx (host::self->index)
#define blockIdx (host::block_index)
#define blockDim (host::block_size)
#define gridDim (host::grid_size)
constexpr int warpSize = 32;

// Vectors.
#define HOST_VECTOR(T, name)                                                                        \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                \
  struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };                     \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                        \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HOST_VECTOR(int, int)
HOST_VECTOR(unsigned, uint)
HOST_VECTOR(float, float)
HOST_VECTOR(double, double)
HOST_VECTOR(unsigned short, ushort)
HOST_VECTOR(unsigned long long, ulonglong)
#undef HOST_VECTOR

// Barriers of a block.
inline void __syncthreads(int line = __builtin_LINE()) { host::wait(host::At::block_barrier, line, 0); }
inline int __syncthreads_or(int value, int line = __builtin_LINE()) {
  return host::wait(host::At::block_barrier, line, value != 0) != 0;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Functions of a warp.
constexpr unsigned HOST_FULL_MASK = 0xffffffffu;
inline void __syncwarp(unsigned mask = HOST_FULL_MASK, int line = __builtin_LINE()) {
  host::warp_wait(host::Warp::sync, mask, 0, 0, line);
}

template <class T>
T host_shuffle(unsigned mask, T value, unsigned from, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = host::warp_wait(host::Warp::shuffle, mask, bits, from, line);
  memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = host::self->lane, base = lane & ~unsigned(width - 1);
  return host_shuffle(mask, value, base + (unsigned(from) & unsigned(width - 1)), line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = host::self->lane, base = lane & ~unsigned(width - 1);
  return host_shuffle(mask, value, lane >= base + delta ? lane - delta : lane, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = host::self->lane, end = (lane & ~unsigned(width - 1)) + unsigned(width);
  return host_shuffle(mask, value, lane + delta < end ? lane + delta : lane, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
  const unsigned lane = host::self->lane, from = lane ^ unsigned(bits), end = (lane & ~unsigned(width - 1)) + unsigned(width);
  return host_shuffle(mask, value, from < end ? from : lane, line);
}

inline unsigned __ballot_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return unsigned(host::warp_wait(host::Warp::ballot, mask, value != 0, 0, line));
}
inline int __any_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return host::warp_wait(host::Warp::disjunction, mask, value != 0, 0, line) != 0;
}
inline int __all_sync(unsigned mask, int value, int line = __builtin_LINE()) {
  return host::warp_wait(host::Warp::conjunction, mask, value != 0, 0, line) != 0;
}
#define HOST_REDUCE(name, kind)                                                                     \
  template <class T>                                                                                \
  T __reduce_##name##_sync(unsigned mask, T value, int line = __builtin_LINE()) {                   \
    static_assert(std::is_integral<T>::value && sizeof(T) == 4, "of 32-bit integers");              \
    return T(host::warp_wait(host::Warp::kind, mask, uint64_t(int64_t(value)), 0, line));           \
  }
HOST_REDUCE(add, add)
HOST_REDUCE(min, smallest)
HOST_REDUCE(max, largest)
HOST_REDUCE(and, conjunction)
HOST_REDUCE(or, disjunction)
HOST_REDUCE(xor, parity)
#undef HOST_REDUCE

// Atomics: only one fiber runs at a time.
#define HOST_ATOMIC(name, expression)                                                               \
  template <class T>                                                                                \
  T name(T* place, typename std::common_type<T>::type value) {                                      \
    const T old = *place;                                                                           \
    *place = expression;                                                                            \
    return old;                                                                                     \
  }
HOST_ATOMIC(atomicAdd, T(old + value))
HOST_ATOMIC(atomicSub, T(old - value))
HOST_ATOMIC(atomicMin, value < old ? value : old)
HOST_ATOMIC(atomicMax, value > old ? value : old)
HOST_ATOMIC(atomicExch, value)
HOST_ATOMIC(atomicAnd, T(old & value))
HOST_ATOMIC(atomicOr, T(old | value))
HOST_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
#undef HOST_ATOMIC
template <class T>
T atomicCAS(T* place, typename std::common_type<T>::type compare, typename std::common_type<T>::type value) {
  const T old = *place;
  if (old == compare) *place = value;
  return old;
}

// Arithmetic.
template <class A, class B>
constexpr typename std::common_type<A, B>::type min(A a, B b) {
  using T = typename std::common_type<A, B>::type;
  if constexpr (std::is_floating_point<T>::value) return std::fmin(T(a), T(b));  // a number beats NaN
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
constexpr typename std::common_type<A, B>::type max(A a, B b) {
  using T = typename std::common_type<A, B>::type;
  if constexpr (std::is_floating_point<T>::value) return std::fmax(T(a), T(b));
  return T(a) < T(b) ? T(b) : T(a);
}
template <class T>
T __ldg(const T* place) {
  return *place;
}
#define HOST_ROUNDED(T, letter)                                                                     \
  inline T __##letter##add_rn(T a, T b) { return a + b; }                                           \
  inline T __##letter##sub_rn(T a, T b) { return a - b; }                                           \
  inline T __##letter##mul_rn(T a, T b) { return a * b; }                                           \
  inline T __##letter##div_rn(T a, T b) { return a / b; }
HOST_ROUNDED(float, f)
HOST_ROUNDED(double, d)
#undef HOST_ROUNDED
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
template <class To, class From>
To host_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "");
  To bits;
  memcpy(&bits, &value, sizeof(To));
  return bits;
}
inline int __float_as_int(float x) { return host_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return host_bits<unsigned>(x); }
inline float __int_as_float(int x) { return host_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return host_bits<float>(x); }
inline long long __double_as_longlong(double x) { return host_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return host_bits<double>(x); }

namespace host {

// Append the type of a kernel's parameter in numpy's words, and a comma.
template <class A>
void describe(char*& end) {
  using V = typename std::remove_pointer<A>::type;
  using Bare = typename std::remove_const<V>::type;
  const bool pointer = std::is_pointer<A>::value, number = std::is_arithmetic<Bare>::value;
  const char* kind = std::is_same<Bare, bool>::value ? "bool" : std::is_floating_point<Bare>::value ? "float"
                     : !number ? "bytes" : std::is_signed<Bare>::value ? "int" : "uint";
  end += sprintf(end, "%s%s", pointer && std::is_const<V>::value ? "const " : "", kind);
  if (number && !std::is_same<Bare, bool>::value) end += sprintf(end, "%d", int(8 * sizeof(Bare)));
  end += sprintf(end, "%s", pointer ? "*," : ",");
}
template <class... A>
const char* parameters(void (*)(A...)) {
  static char text[24 * (sizeof...(A) + 1)];
  char* end = text;
  (describe<A>(end), ...);
  return text;
}
template <class... A, size_t... K>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<K...>) {
  kernel(*static_cast<A*>(arguments[K])...);
}
template <class... A>
void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>());
}

}  // namespace host

template <class T>
T* host_dynamic_shared() {
  return static_cast<T*>(host::dynamic_shared);
}

#define HOST_EXPORT extern "C" __attribute__((visibility("default")))
#define HOST_ENTRY(kernel)                                                                          \
  HOST_EXPORT const char* parameters_##kernel() { return host::parameters(kernel); }                \
  HOST_EXPORT int launch_##kernel(const host::Plan* plan, void** arguments, char* message_256) {    \
    return host::run(*plan, [](void** a) { host::call(kernel, a); }, arguments, message_256);       \
  }
