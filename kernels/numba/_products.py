"""Sums of products in vectors, each in one order: the bits of an output do not depend on what is formed beside it.

LLVM does not vectorise a sum whose order it must keep, and a matrix product that may choose the order rounds a row
differently with the number of rows beside it. Here a dot product is LANES partial sums, lane l over the elements l,
l + LANES, ..., then neighbours added pairwise; and a weighted sum of rows adds the sums of TILE rows each. Both use
fused multiply-adds, and form LANES vectors at once to keep the processor busy.
"""

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import float32, float64, int32, int64, void
from numba.core import cgutils
from numba.extending import intrinsic

from kdtree.reference.arrays import Float, Index, floats

from ._jit import device, inp, kernel, out

__all__ = ["mixtures", "one_precision", "products"]


def one_precision(**arrays: Float) -> list[Float]:
    """Return the arrays C-ordered, all float64 if one is and else float32; ShapeError if one is neither."""
    ordered = [floats(name, array) for name, array in arrays.items()]
    if len({array.dtype for array in ordered}) > 1:
        return [array.astype(np.float64) for array in ordered]
    return ordered


def products(x_JI: Float, weight_EOI: Float, matrix_J: Index) -> Float:
    """Return y[j] = weight[matrix[j]] x[j], shape (J, O), fastest where equal matrices are side by side.

    Nothing is checked here: arrays are C-ordered and of one precision, indices int32 and in range.
    """
    y_JO = np.empty((len(x_JI), weight_EOI.shape[1]), x_JI.dtype)
    multiply = multiply_float32 if x_JI.dtype == np.float32 else multiply_float64
    multiply(x_JI, weight_EOI, matrix_J, y_JO)
    return y_JO


def mixtures(weight_GJK: Float, row_GK: Index, count_G: Index, value_RX: Float, columns: int) -> Float:
    """Return y[g, j] = sum over k < count[g] of weight[g, j, k] value[row[g, k], :columns], shape (G, J, columns).

    Nothing is checked here either.
    """
    y_GJC = np.zeros((*weight_GJK.shape[:2], columns), weight_GJK.dtype)
    mix = mix_float32 if y_GJC.dtype == np.float32 else mix_float64
    mix(weight_GJK, row_GK, count_G, value_RX, y_GJC)
    return y_GJC


LANES = 8
TILE = 32  # rows of a mixture that are summed by themselves, and stay in the nearest cache while weights go by
I32, I64 = ir.IntType(32), ir.IntType(64)


def dots(outputs):
    """Make dots(x, x_at, w, w_at, size, y, y_at): `outputs` dot products of a row, y[o] = sum over i of x[i] w[o, i].

    Arrays count as flat: x is read from x_at, w from w_at with `size` elements a row, and y is written from y_at.
    """

    @intrinsic
    def form(typing_context, x, x_at, w, w_at, size, y, y_at):
        def generate(context, builder, signature, arguments):
            x, w, y = (element(context, builder, signature, arguments, k) for k in (0, 2, 5))
            size = arguments[4]
            rows = [x, *(builder.gep(w, [builder.mul(size, I64(o))]) for o in range(outputs))]
            sums = add_lanes(builder, sum_lanes(builder, rows, size))
            for o in range(outputs):
                builder.store(builder.extract_element(sums, I64(o)), builder.gep(y, [I64(o)]))
            return context.get_dummy_value()

        return void(x, int64, w, int64, int64, y, int64), generate

    return form


def element(context, builder, signature, arguments, k):
    """Return the address of the element of array k that the argument after it counts."""
    array = context.make_array(signature.args[k])(context, builder, arguments[k])
    return builder.gep(array.data, [arguments[k + 1]])


def sum_lanes(builder, rows, size):
    """Emit the loop over elements; return partial sums of the first row times each other row."""
    vector = ir.VectorType(rows[0].type.pointee, LANES)
    sums = variables(builder, vector, len(rows) - 1)

    def step(i, mask):
        of_x, *of_rows = (load(builder, vector, builder.gep(row, [i]), mask) for row in rows)
        for place, of_row in zip(sums, of_rows, strict=True):
            multiply_add(builder, of_x, of_row, place)

    whole = builder.and_(size, I64(-LANES))
    with cgutils.for_range_slice(builder, I64(0), whole, I64(LANES)) as (i, _):
        step(i, None)
    with builder.if_then(builder.icmp_signed("<", whole, size)):  # what is left, beside zeros
        step(whole, first_lanes(builder, builder.sub(size, whole)))
    return [builder.load(place) for place in sums]


def add_lanes(builder, sums):
    """Add neighbouring lanes until one of each vector is left; these come first in the vector returned."""
    even, odd = list(range(0, 2 * LANES, 2)), list(range(1, 2 * LANES, 2))
    for _ in range(LANES.bit_length() - 1):
        pairs = zip(sums[::2], sums[1::2] or sums, strict=True)
        sums = [builder.fadd(shuffle(builder, a, b, even), shuffle(builder, a, b, odd)) for a, b in pairs]
    return sums[0]


def mixes(whole):
    """Make mixes(w, w_at, row, row_at, count, value, value_at, size, y, y_at, width): y += sum of w[k] value[row[k]].

    It covers LANES vectors of columns if `whole`, and else the first `width` columns of so many. Arrays count as flat,
    rows of value have `size` elements.
    """

    @intrinsic
    def form(typing_context, w, w_at, row, row_at, count, value, value_at, size, y, y_at, width):
        def generate(context, builder, signature, arguments):
            w, row, value, y = (element(context, builder, signature, arguments, k) for k in (0, 2, 5, 8))
            count, size, width = arguments[4], arguments[7], arguments[10]
            vector = ir.VectorType(y.type.pointee, LANES)
            starts = [I64(LANES * v) for v in range(LANES)]
            masks = [None if whole else first_lanes(builder, builder.sub(width, start)) for start in starts]
            sums = variables(builder, vector, LANES)
            with cgutils.for_range(builder, count) as loop:
                weights = splat(builder, builder.load(builder.gep(w, [loop.index])))
                at = builder.mul(size, builder.sext(builder.load(builder.gep(row, [loop.index])), I64))
                for place, start, mask in zip(sums, starts, masks, strict=True):
                    of_row = load(builder, vector, builder.gep(value, [builder.add(at, start)]), mask)
                    multiply_add(builder, weights, of_row, place)
            for place, start, mask in zip(sums, starts, masks, strict=True):
                y_part = builder.gep(y, [start])
                save(builder, builder.fadd(load(builder, vector, y_part, mask), builder.load(place)), y_part, mask)
            return context.get_dummy_value()

        return void(w, int64, row, int64, int64, value, int64, int64, y, int64, int64), generate

    return form


def variables(builder, vector, count):
    """Return places for vectors, zero at first; LLVM turns them into registers."""
    places = [cgutils.alloca_once(builder, vector) for _ in range(count)]
    for place in places:
        builder.store(vector([0.0] * LANES), place)
    return places


def multiply_add(builder, a, b, place):
    """Add a b to the vector at a place, rounded once."""
    sum = builder.load(place)
    builder.store(call(builder, f"fma.{suffix(sum.type)}", sum.type, a, b, sum), place)


def load(builder, vector, place, mask):
    """Read a vector where it lies, aligned or not; with a mask only its lanes are read, and others are zero."""
    place, zero = builder.bitcast(place, vector.as_pointer()), vector([0.0] * LANES)
    if mask is None:
        return builder.load(place, align=1)
    return call(builder, f"masked.load.{suffix(vector)}.p0", vector, place, I32(1), mask, zero)


def save(builder, value, place, mask):
    """Write a vector where it lies, or the lanes of a mask."""
    place = builder.bitcast(place, value.type.as_pointer())
    if mask is None:
        builder.store(value, place, align=1)
    else:
        call(builder, f"masked.store.{suffix(value.type)}.p0", ir.VoidType(), value, place, I32(1), mask)


def suffix(vector):
    """Return what LLVM calls a vector type."""
    return f"v{LANES}f{32 if vector.element == ir.FloatType() else 64}"


def first_lanes(builder, count):
    """Return the mask of the first `count` lanes."""
    lanes = ir.VectorType(I64, LANES)(list(range(LANES)))
    return builder.icmp_signed("<", lanes, splat(builder, count))


def splat(builder, scalar):
    """Return a vector of equal lanes."""
    one = builder.insert_element(ir.VectorType(scalar.type, LANES)(ir.Undefined), scalar, I32(0))
    return shuffle(builder, one, one, [0] * LANES)


def shuffle(builder, a, b, lanes):
    """Pick lanes of a followed by b."""
    return builder.shuffle_vector(a, b, ir.VectorType(I32, LANES)(lanes))


def call(builder, name, result, *arguments):
    """Call an LLVM intrinsic."""
    function = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}"), arguments)


one_dot, lanes_of_dots = dots(1), dots(LANES)
mix_whole, mix_part = mixes(True), mixes(False)


@device
def multiply(x_JI, weight_EOI, matrix_J, y_JO):
    """Fill y, for the rows of one matrix LANES outputs at a time; the last LANES overlap those before them."""
    J, (_, O, I) = len(matrix_J), weight_EOI.shape  # noqa: E741
    first = 0
    while first < J:
        last = first + 1
        while last < J and matrix_J[last] == matrix_J[first]:
            last += 1
        matrix = matrix_J[first] * O * I
        for block in range(0, O, LANES):
            o = max(min(block, O - LANES), 0)
            for j in range(first, last):
                if O >= LANES:
                    lanes_of_dots(x_JI, j * I, weight_EOI, matrix + o * I, I, y_JO, j * O + o)
                else:
                    for each in range(O):
                        one_dot(x_JI, j * I, weight_EOI, matrix + each * I, I, y_JO, j * O + each)
        first = last


@device
def mix(weight_GJK, row_GK, count_G, value_RX, y_GJC):
    """Add to y block by block of TILE tiles of TILE rows, so that rounding grows slowly over a long prefix."""
    K = weight_GJK.shape[2]
    block_GJC = np.empty_like(y_GJC)
    for first in range(0, K, TILE * TILE):
        block_GJC[:] = 0
        for k in range(first, min(first + TILE * TILE, K), TILE):
            mix_tile(weight_GJK, row_GK, count_G, value_RX, k, block_GJC)
        y_GJC += block_GJC


@device
def mix_tile(weight_GJK, row_GK, count_G, value_RX, k, y_GJC):
    """Add rows k to k + TILE of each list to y, for all weights."""
    G, J, K = weight_GJK.shape
    C, X = y_GJC.shape[2], value_RX.shape[1]
    for g in range(G):
        count = min(count_G[g] - k, TILE)
        for j in range(J if count > 0 else 0):
            w_at, row_at, y_at = (g * J + j) * K + k, g * K + k, (g * J + j) * C
            for c in range(0, C, LANES * LANES):
                if C - c >= LANES * LANES:
                    mix_whole(weight_GJK, w_at, row_GK, row_at, count, value_RX, c, X, y_GJC, y_at + c, C - c)
                else:
                    mix_part(weight_GJK, w_at, row_GK, row_at, count, value_RX, c, X, y_GJC, y_at + c, C - c)


@kernel(void, inp(float32, 2), inp(float32, 3), inp(int32, 1), out(float32, 2))
def multiply_float32(x_JI, weight_EOI, matrix_J, y_JO):
    """Multiply in float32."""
    multiply(x_JI, weight_EOI, matrix_J, y_JO)


@kernel(void, inp(float64, 2), inp(float64, 3), inp(int32, 1), out(float64, 2))
def multiply_float64(x_JI, weight_EOI, matrix_J, y_JO):
    """Multiply in float64."""
    multiply(x_JI, weight_EOI, matrix_J, y_JO)


@kernel(void, inp(float32, 3), inp(int32, 2), inp(int32, 1), inp(float32, 2), out(float32, 3))
def mix_float32(weight_GJK, row_GK, count_G, value_RX, y_GJC):
    """Mix in float32."""
    mix(weight_GJK, row_GK, count_G, value_RX, y_GJC)


@kernel(void, inp(float64, 3), inp(int32, 2), inp(int32, 1), inp(float64, 2), out(float64, 3))
def mix_float64(weight_GJK, row_GK, count_G, value_RX, y_GJC):
    """Mix in float64."""
    mix(weight_GJK, row_GK, count_G, value_RX, y_GJC)
