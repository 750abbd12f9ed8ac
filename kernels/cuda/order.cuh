// Integers that order as floats do, -0 as 0. A NaN without its sign comes last; 0, before -inf, is that of all ones.
#pragma once

__device__ inline unsigned order_of(float x) {
  constexpr unsigned SIGN = 1u << 31;
  unsigned bits = __float_as_uint(x);
  if (bits == SIGN) bits = 0;
  return bits & SIGN ? ~bits : bits | SIGN;
}
__device__ inline unsigned long long order_of(double x) {
  constexpr unsigned long long SIGN = 1ull << 63;
  unsigned long long bits = (unsigned long long)__double_as_longlong(x);
  if (bits == SIGN) bits = 0;
  return bits & SIGN ? ~bits : bits | SIGN;
}
