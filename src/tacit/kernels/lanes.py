"""Several float32 numbers at a time, as a processor's vector instructions work on them.

A compiler makes such instructions of a plain loop only where it can prove that the arrays do not
overlap. It keeps no sum in a register between two of them. Here both are stated. A lane does the
same operations in the same order for every content of the others.

`count` is a constant, 8 or 16. Nothing checks an index: behind the numbers that a caller uses, an
array has `layout.SLACK` more.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

from tacit.kernels.jit import LEVEL

WIDE = 16 if LEVEL == "x86-64-v4" else 8  # numbers of the widest register, of which v3 has sixteen

_INT, _FLOAT = ir.IntType(32), ir.FloatType()


class Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of `count` float32 numbers."""

    def __init__(self, count: int) -> None:
        self.count, self.vector = count, ir.VectorType(_FLOAT, count)
        super().__init__(name=f"Lanes({count})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, kind.vector)


def _indices(numbers: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INT, len(numbers)), numbers)


def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any, lanes: Lanes) -> Any:
    first = builder.gep(make_array(kind)(context, builder, array).data, [index])
    return builder.bitcast(first, lanes.vector.as_pointer())


def _spread(builder: Any, number: Any, lanes: Lanes) -> Any:
    nothing = ir.Constant(lanes.vector, ir.Undefined)
    single = builder.insert_element(nothing, number, ir.Constant(_INT, 0))
    return builder.shuffle_vector(single, nothing, _indices([0] * lanes.count))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def load(_: Any, x: Any, i: Any, count: Any) -> Any:
    """Load the `count` numbers of x (n,) from the i-th on."""
    lanes = Lanes(count.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1], lanes)
        return builder.load(place, align=4)

    return lanes(x, types.intp, count), code


@intrinsic  # type: ignore[untyped-decorator]
def store(_: Any, x: Any, i: Any, v: Any) -> Any:
    """Store v as x[i], x[i + 1] …."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1], v)
        builder.store(args[2], place, align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, v), code


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def spread(_: Any, number: Any, count: Any) -> Any:
    """Return `count` times the number."""
    lanes = Lanes(count.literal_value)

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _spread(builder, args[0], lanes)

    return lanes(types.float32, count), code


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def spread_at(_: Any, x: Any, i: Any, count: Any) -> Any:
    """Return `count` times the i-th number of x (n,)."""
    lanes = Lanes(count.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, args[0])
        return _spread(builder, builder.load(builder.gep(array.data, [args[1]])), lanes)

    return lanes(x, types.intp, count), code


@intrinsic  # type: ignore[untyped-decorator]
def rising(_: Any, a: Any, d: Any) -> Any:
    """Keep each number of d where that of a is above 0, and put zeros elsewhere."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        nothing = ir.Constant(a.vector, [0.0] * a.count)
        above = builder.fcmp_ordered(">", args[0], nothing)
        return builder.select(above, args[1], nothing)

    return a(a, d), code


@intrinsic  # type: ignore[untyped-decorator]
def larger(_: Any, a: Any, b: Any) -> Any:
    """Return the larger of a and b in each lane; b where one is not a number."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), code


@intrinsic  # type: ignore[untyped-decorator]
def fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a·b + c, in one rounding where the processor can."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(a.vector, [a.vector] * 3)
        name = f"llvm.fmuladd.v{a.count}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    return a(a, b, c), code


@intrinsic  # type: ignore[untyped-decorator]
def first(_: Any, v: Any, n: Any) -> Any:
    """Keep the first n of v, and put zeros behind them."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        limit = builder.trunc(args[1], _INT)
        nothing = ir.Constant(ir.VectorType(_INT, v.count), ir.Undefined)
        single = builder.insert_element(nothing, limit, ir.Constant(_INT, 0))
        limits = builder.shuffle_vector(single, nothing, _indices([0] * v.count))
        inside = builder.icmp_signed("<", _indices(list(range(v.count))), limits)
        return builder.select(inside, args[0], ir.Constant(v.vector, [0.0] * v.count))

    return v(v, types.intp), code


@intrinsic  # type: ignore[untyped-decorator]
def summed(_: Any, v: Any) -> Any:
    """Return the sum of the lanes: halves are added until one is left."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        total, half = args[0], v.count // 2
        while half:
            turned = [lane + half if lane < half else 0 for lane in range(v.count)]
            upper = builder.shuffle_vector(total, total, _indices(turned))
            total, half = builder.fadd(total, upper), half // 2
        return builder.extract_element(total, ir.Constant(_INT, 0))

    return types.float32(v), code
