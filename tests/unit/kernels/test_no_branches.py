"""No conditional jump of the compiled loops depends on a comparison of a row's numbers.

Read off the machine code: the instruction that sets a jump's flags compares no floats.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from typing import Any

import pytest

from tacit.kernels.loading import library

pytestmark = [
    pytest.mark.skipif(
        library() is None and not os.environ.get("CI"), reason="numba is not installed"
    ),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86-64"),
]
JUMP = re.compile(r"\s*j(?!mp)[a-z]+\s")
CALL = re.compile(r"\s*call|.*movabsq\s+\$(?:tanh|exp|log|sqrt|pow|sin|cos)f?,")
MATHEMATICS = re.compile(r"\b(?:tanh|exp|expm1|log|sqrt|pow|sin|cos)f?\b")
OF_FLOATS = re.compile(r"\s*v?u?comis[sd]\s+(.+), (.+)|\s*(?:k(?:or)?test|vp?test)[a-z]*\s")
SETS_FLAGS = re.compile(
    r"\s*(?:cmp|test|add|sub|inc|dec|and|or|xor|neg|sh[lr]|sa[lr]|imul|bt|bls|bzhi|[lt]zcnt|popcnt"
    r"|v?u?comis[sd]|k(?:or)?test|vp?test)[a-z]*\s"
)


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """Return the machine code of `function`, compiled anew, with all that it calls."""
    import numba

    dispatcher = numba.njit(error_model="numpy")(function)
    dispatcher.compile(arguments)
    return str(next(iter(dispatcher.inspect_asm().values()))).splitlines()


def on_floats(code: list[str]) -> list[str]:
    """Return the comparisons of floats that a conditional jump follows, each once.

    Comparisons of two sizes of an array are left out: numba compares them as floats when it gives
    the array another shape.
    """
    jumps = []
    for at, line in enumerate(code):
        if JUMP.match(line):
            set_at = next(k for k in range(at - 1, -1, -1) if SETS_FLAGS.match(code[k]))
            comparison = OF_FLOATS.match(code[set_at])
            if comparison and not _of_sizes(code[:set_at], comparison):
                jumps.append(f"{set_at}: {code[set_at].strip()}")
    return sorted(set(jumps))


def _of_sizes(before: list[str], comparison: re.Match[str]) -> bool:
    operands = [name for name in comparison.groups() if name]
    converted = [line for line in before[-6:] if "vcvtsi2sd" in line]
    return len(operands) == 2 and all(
        any(line.endswith(name) for line in converted) for name in operands
    )


def mathematics(code: list[str]) -> list[str]:
    """Return the functions of libm that are called."""
    return [line.strip() for line in code if CALL.match(line) and MATHEMATICS.search(line)]


def of_entry(name: str) -> list[str]:
    import numba

    from tacit.kernels import __main__ as calls

    function, arguments = next(call for call in calls._CALLS if call[0].__name__ == name)
    plain = function.py_func  # type: ignore[attr-defined]
    return compiled(plain, tuple(map(numba.typeof, arguments)))


# A row's whole numbers are compared with the limit that the factor keeps them below, always.
ALWAYS_SO = {"add_integers": 1, "clip_integers": 1, "outer_integers": 1}


@pytest.mark.parametrize(
    "name",
    [
        *("places", "normals", "add_on_grid", "add_integers", "clip_integers", "clip_floats"),
        *("square", "factor_of", "add_part", "add_part_floats"),
        *("outer_integers", "outer_floats", "deltas"),
    ],
)
def test_no_jump_depends_on_a_number(name: str) -> None:
    code = of_entry(name)
    assert sum(map(bool, map(JUMP.match, code))) > 10  # it reads code
    assert len(on_floats(code)) == ALWAYS_SO.get(name, 0), on_floats(code)
    assert mathematics(code) == []


@pytest.mark.parametrize(
    "name", ["activate", "deactivate", "normalize", "denormalize", "hinge", "cross_entropy"]
)
def test_no_jump_of_a_layer_depends_on_a_number(name: str) -> None:
    import numba

    from tacit.kernels import layers

    line, plane, integer = numba.float32[::1], numba.float32[:, ::1], numba.int64
    arguments = {
        "activate": (integer, line),
        "deactivate": (integer, line, line),
        "normalize": (plane, integer, line),
        "denormalize": (plane, plane, line),
        "hinge": (line, integer, line),
        "cross_entropy": (line, integer, line),
    }[name]
    function = getattr(layers, name)
    function.compile(arguments)
    code = str(function.inspect_asm(arguments)).splitlines()
    assert on_floats(code) == []
    assert mathematics(code) == []


def test_no_jump_of_functions_and_labels_depends_on_a_number() -> None:
    import numba

    from tacit.kernels import functions, tape

    line, integer, double = numba.float32[::1], numba.int64, numba.float64
    called: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (functions.sigmoid, (line,)),
        (functions.gelu, (line, line)),
        (functions.add_gelu_slope, (line, line, line)),
        (tape.soft_labels, (line, integer, double, line)),
    )
    for function, arguments in called:
        function.compile(arguments)
        code = str(function.inspect_asm(arguments)).splitlines()
        assert on_floats(code) == []
        assert mathematics(code) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gradients", "tape_gradients"])
def test_no_jump_of_any_gradient_depends_on_a_number(name: str) -> None:
    code = of_entry(name)
    jumps = on_floats(code)
    assert len(jumps) == 1, jumps  # whether there is a penalty, which is public
    assert mathematics(code) == []


def test_a_branch_and_a_call_are_seen() -> None:
    import math

    import numba
    import numpy as np

    def branching(z: Any) -> None:
        for j in range(len(z)):
            if z[j] > 1:
                z[j] = np.float32(math.tanh(z[j]))

    code = compiled(branching, (numba.float32[::1],))
    assert on_floats(code) != []
    assert mathematics(code) != []
