// linear: a warp forms 8 rows of 4 columns.
#include "reals.cuh"
#include "products.cuh"

extern "C" __global__ void linear(const REAL* x_TI, const REAL* weight_OI, long long T, long long I, long long O,
                                  REAL* y_TO) {
  multiply(x_TI, I, weight_OI, T, I, O, y_TO, O);
}
