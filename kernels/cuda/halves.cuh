// Numbers of two bytes, as they lie in memory; value() is exact, and the same bits on host and GPU.
#pragma once

struct Half { unsigned short bits; };    // 1 sign, 5 exponent, 10 fraction
struct Bfloat { unsigned short bits; };  // the upper half of a float

__device__ inline float value(float x) { return x; }
__device__ inline double value(double x) { return x; }
__device__ inline float value(Bfloat x) { return __int_as_float((int)((unsigned)x.bits << 16)); }
__device__ inline float value(Half x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return __int_as_float((int)(sign | 0x70000000u | rest));  // infinite, or NaN
  return __int_as_float((int)(sign | rest)) * 5.192296858534828e33f;  // 2^112 moves the exponent's origin
}
