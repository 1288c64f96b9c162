"""The one way to the compiled loops: `library()`, and `described()`, which says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Library:
    """Every function that Python calls, documented where it is written."""

    places: Callable[..., int]
    normals: Callable[..., None]
    add_on_grid: Callable[..., int]
    add_integers: Callable[..., None]
    clip_integers: Callable[..., None]
    clip_floats: Callable[..., None]
    square: Callable[..., float]
    factor_of: Callable[..., float]
    add_part: Callable[..., float]
    add_part_floats: Callable[..., None]
    outer_integers: Callable[..., None]
    outer_floats: Callable[..., None]
    gradients: Callable[..., None]
    tape_gradients: Callable[..., None]
    deltas: Callable[..., None]


@lru_cache(maxsize=1)
def library() -> Library | None:
    """Return the compiled functions; None where numba is not installed.

    The extras `edge` and `run` install it. The caller then uses its plain twin. Imports numba,
    once, which takes a third of a second. A function is compiled at its first call, in up to half a
    minute, or comes from the cache, in milliseconds.
    """
    try:
        from tacit.kernels import network, noise, sums, tape
    except ImportError:
        return None
    return Library(
        noise.places,
        noise.normals,
        noise.add_on_grid,
        sums.add_integers,
        sums.clip_integers,
        sums.clip_floats,
        sums.square,
        sums.factor_of,
        sums.add_part,
        sums.add_part_floats,
        sums.outer_integers,
        sums.outer_floats,
        network.gradients,
        tape.tape_gradients,
        network.deltas,
    )


def described() -> str:
    """Return which way hot loops go in this process, for its log."""
    if library() is None:
        return "plain torch (numba is not installed)"
    import numba

    from tacit.kernels import jit

    target = jit.LEVEL or "this processor"
    cache = f"kept in {jit.FOLDER}" if jit.CACHED else "compiled at every start: no cache"
    return f"numba {numba.__version__} for {target}, {cache}"
