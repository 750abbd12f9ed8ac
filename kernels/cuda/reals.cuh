// Arithmetic in REAL: float or double, by a macro of the wrapper.
#pragma once

__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }
__device__ inline REAL infinity() { return __int_as_float(0x7f800000); }

__device__ inline REAL silu(REAL x) { return x / (1 + exponential(-x)); }
