"""Lays the tape of a network, for `tape_sums`: operations, memory, and the order of parameters.

A value is what an operation makes of one row: channels at each of some places. Its derivative has
memory only while it is needed on the way back; so the memory of one row stays in a core's cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.layout import SLACK
from tacit.kernels.tape_layout import (
    ACTIVATE,
    ADD,
    CONVOLVE,
    DEPTHWISE,
    EMBED,
    LSTM,
    MEAN,
    NORMALIZE,
    OPERATION,
    PAD,
    PLAIN,
    TAKE,
    TAPE_FIELDS,
)

_Indices = NDArray[np.int64]


class Unfit(Exception):  # noqa: N818  (a verdict on a network)
    """No tape can be laid of this network."""


@dataclass(eq=False)
class TapeValue:
    """What an operation makes: `channels` numbers at each of `places`, `width` apart.

    side: of a picture, or 0. at: where in a place's `width` numbers each channel stands. start, d:
    where it begins in memory, and the derivative by it, once they are placed. base: whose memory it
    is, seen in another shape.
    """

    places: int
    channels: int
    width: int
    side: int = 0
    at: _Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    start: int = -1
    d: int = -1
    base: TapeValue | None = None

    @property
    def size(self) -> int:
        """Numbers in memory."""
        return self.places * self.width

    @property
    def owner(self) -> TapeValue:
        """The value whose memory it has."""
        return self.base or self


@dataclass(eq=False)
class _Laid:
    """An operation: its record so far, and the values that it takes and makes."""

    record: dict[str, int]
    x: TapeValue
    out: TapeValue
    other: TapeValue | None = None

    @property
    def inputs(self) -> list[TapeValue]:
        """The values that it takes."""
        return [self.x] if self.other is None else [self.x, self.other]


class Tape:
    """A network as operations on one row. `table`, `order` and `memory` are ready after `finish`.

    Every weight is given as the places of its numbers in the model's vector. order: for each number
    of the tape's parameters the model's, or -1 where there is none; `size` of them are trained, and
    copies for the way back follow. memory, totals: float32 and float64 numbers of a row.
    """

    def __init__(self) -> None:
        self.size = 0
        self.memory = 0
        self.totals = PAD
        self._order: list[_Indices] = []
        self._turned: list[_Indices] = []
        self._copies = 0
        self._laid: list[_Laid] = []
        self._input: TapeValue | None = None
        self._shared = PAD

    # -- what a network is made of

    def picture(self, shape: tuple[int, ...]) -> TapeValue:
        """Take a row of a square picture's planes, (channels, side, side)."""
        channels, side, _ = shape
        value = TapeValue(side * side, channels, channels, side, np.arange(channels))
        return self._take(value, lines=1, across=side * side)

    def places(self, count: int, channels: int) -> TapeValue:
        """Take a row of `channels` numbers at each of `count` places."""
        return self._take(_value(count, channels), lines=channels, across=1)

    def _take(self, value: TapeValue, **apart: int) -> TapeValue:
        self._input = value
        record = {"kind": TAKE, "channels": value.channels, **apart}
        self._laid.append(_Laid(record, value, value))
        return value

    def embed(self, count: int, weight: _Indices) -> TapeValue:
        """Take `count` words, and a row of `weight` (words, channels) for each."""
        words, channels = weight.shape
        value = _value(count, channels)
        filled = np.full((words, value.width), -1)
        filled[:, :channels] = weight
        record = {"kind": EMBED, "channels": words, "weight": self._lay(filled)}
        self._laid.append(_Laid(record, value, value))
        return value

    def convolve(
        self, x: TapeValue, weight: _Indices, bias: _Indices | None, stride: int = 1, pad: int = 0
    ) -> TapeValue:
        """Apply a convolution of weight (outputs, inputs, kernel, kernel) to a picture."""
        outputs, _, kernel, _ = weight.shape
        wide = x.side + 2 * pad
        side = (wide - kernel) // stride + 1
        out = _value(side * side, outputs, side)
        filled = np.full((kernel, kernel, x.width, out.width), -1)
        filled[:, :, x.at, :outputs] = weight.transpose(2, 3, 1, 0)
        record = self._weighed(filled, bias, out) | {"kind": CONVOLVE}
        record |= _window(x, side, kernel, stride, pad)
        if x.owner is not self._input:
            turned = filled[::-1, ::-1] if stride == 1 else filled
            record["turned"] = self._turn(turned.transpose(0, 1, 3, 2))
        self._share(record, x, out)
        if kernel == 1 and stride == 1 and not pad:  # one line of all places
            record |= {"lines": 1, "across": out.places}
        return self._made(record, x, out)

    def convolve_each(
        self, x: TapeValue, weight: _Indices, bias: _Indices | None, stride: int = 1, pad: int = 0
    ) -> TapeValue:
        """Apply a convolution of each channel by itself, weight (channels, 1, kernel, kernel)."""
        channels, _, kernel, _ = weight.shape
        side = (x.side + 2 * pad - kernel) // stride + 1
        out = _value(side * side, channels, side)
        filled = np.full((kernel, kernel, x.width), -1)
        filled[:, :, :channels] = weight[:, 0].transpose(1, 2, 0)
        record = self._weighed(filled, bias, out) | {"kind": DEPTHWISE}
        record |= _window(x, side, kernel, stride, pad)
        if stride == 1:
            record["turned"] = self._turn(filled[::-1, ::-1])
        self._share(record, x, out)
        return self._made(record, x, out)

    def dense(self, x: TapeValue, weight: _Indices, bias: _Indices | None) -> TapeValue:
        """Apply a dense layer of weight (outputs, inputs) to each place."""
        outputs, _ = weight.shape
        out = _value(x.places, outputs, x.side)
        filled = np.full((x.width, out.width), -1)
        filled[x.at, :outputs] = weight.T
        record = self._weighed(filled, bias, out) | {"kind": CONVOLVE}
        record |= {"lines": 1, "across": x.places, "side": 1, "wide": 1}
        record |= {"kernel": 1, "stride": 1, "pad": 0}
        if x.owner is not self._input:
            record["turned"] = self._turn(filled.T)
        return self._made(record, x, out)

    def flatten(self, x: TapeValue) -> TapeValue:
        """See a picture as a list of all its channels' numbers, plane by plane."""
        at = (np.arange(x.places) * x.width + x.at[:, None]).flatten()
        return TapeValue(1, len(at), x.size, 0, at, base=x)

    def normalize(
        self,
        x: TapeValue,
        groups: int,
        weight: _Indices | None = None,
        bias: _Indices | None = None,
        follows: int = PLAIN,
        *,
        each: bool = False,
    ) -> TapeValue:
        """Normalize groups of channels, over all places or at each; weight, bias (channels,)."""
        out = _value(x.places, x.channels, x.side)
        record = {"kind": NORMALIZE, "groups": groups, "channels": x.channels, "follows": follows}
        record["each"] = x.places if each else 1
        record["weight"] = -1 if weight is None else self._lay(_filled(weight, out.width))
        record["bias"] = -1 if bias is None else self._lay(_filled(bias, out.width))
        self.totals = max(self.totals, 2 * out.width)
        self._shared = max(self._shared, 3 * out.width)
        return self._made(record, x, out)

    def add(self, x: TapeValue, other: TapeValue, follows: int = PLAIN) -> TapeValue:
        """Add `other`: of a larger picture every other place, of fewer channels the first ones."""
        out = _value(x.places, x.channels, x.side)
        record = {"kind": ADD, "follows": follows}
        if other.places == x.places and other.width == x.width:
            record |= {"lines": 1, "across": 1, "stride": 1, "side": 1, "inputs": other.size}
        else:
            stride = -(-other.side // x.side)
            record |= {"lines": x.side, "across": x.side, "stride": stride, "side": other.side}
            record["inputs"] = other.width
        return self._made(record, x, out, other)

    def activate(self, x: TapeValue, follows: int) -> TapeValue:
        """Apply an activation to each number."""
        record = {"kind": ACTIVATE, "follows": follows}
        return self._made(record, x, _value(x.places, x.channels, x.side))

    def follow(self, x: TapeValue, follows: int) -> bool:
        """Have the operation that makes x end with an activation, if it can; return whether it can.

        Nothing else may read x.
        """
        maker = next((each for each in self._laid if each.out is x), None)
        if maker is None or maker.record["kind"] not in (NORMALIZE, ADD):
            return False
        if maker.record["follows"] != PLAIN:
            return False
        maker.record["follows"] = follows
        return True

    def average(self, x: TapeValue) -> TapeValue:
        """Take the mean over all places."""
        return self._made({"kind": MEAN, "side": x.places}, x, _value(1, x.channels))

    def cells(
        self, x: TapeValue, weight: _Indices, bias: _Indices, recurrent: _Indices
    ) -> TapeValue:
        """Apply a layer of LSTM cells: weight (4·cells, inputs), recurrent (4·cells, cells)."""
        cells = len(bias) // 4
        out = _value(x.places, cells)
        filled = np.full((x.width, 4, out.width), -1)
        filled[x.at, :, :cells] = weight.reshape(4, cells, -1).transpose(2, 0, 1)
        biases = np.full((4, out.width), -1)
        biases[:, :cells] = bias.reshape(4, cells)
        again = np.full((out.width, 4, out.width), -1)
        again[:cells, :, :cells] = recurrent.reshape(4, cells, cells).transpose(2, 0, 1)
        record = {"kind": LSTM, "weight": self._lay(filled), "bias": self._lay(biases)}
        record["recurrent"] = self._lay(again)
        record["back"] = self._turn(again.reshape(out.width, -1).T)
        record["turned"] = self._turn(filled.reshape(x.width, -1).T)
        return self._made(record, x, out)

    # -- parameters

    def _lay(self, indices: _Indices) -> int:
        """Place trained numbers, and return where they begin."""
        self._order.append(indices.flatten())
        self.size += indices.size
        return self.size - indices.size

    def _turn(self, indices: _Indices) -> int:
        """Place copies of them, and return where they begin among the copies."""
        self._turned.append(indices.flatten())
        self._copies += indices.size
        return self._copies - indices.size

    def _weighed(self, filled: _Indices, bias: _Indices | None, out: TapeValue) -> dict[str, int]:
        weight = self._lay(filled)
        if bias is None:
            return {"weight": weight, "bias": -1}
        return {"weight": weight, "bias": self._lay(_filled(bias, out.width))}

    @property
    def order(self) -> _Indices:
        """For each number of the tape's parameters the model's, -1 where there is none."""
        return np.concatenate([*self._order, *self._turned])

    # -- memory

    def _share(self, record: dict[str, int], x: TapeValue, out: TapeValue) -> None:
        """Note how much memory the way back through a window needs."""
        if record["stride"] == 1:
            wide = record["across"] + 2 * (record["kernel"] - 1 - record["pad"])
            self._shared = max(self._shared, wide**2 * out.width)
        else:
            self._shared = max(self._shared, record["wide"] ** 2 * x.width)

    def _made(
        self, record: dict[str, int], x: TapeValue, out: TapeValue, other: TapeValue | None = None
    ) -> TapeValue:
        for value in (x, other):
            if value is not None and record["kind"] != CONVOLVE:
                _side_by_side(value)
        self._laid.append(_Laid(record, x, out, other))
        return out

    def reserve(self, count: int) -> int:
        """Reserve `count` numbers of memory, and return where they begin."""
        self.memory += -(-count // PAD) * PAD
        return self.memory - -(-count // PAD) * PAD

    def finish(self) -> NDArray[Any]:
        """Place everything, and return the operations as an array of `OPERATION`."""
        for laid in self._laid:
            self._place(laid)
        self._place_back()
        shared = self.reserve(self._shared + SLACK)
        for laid in self._laid:
            laid.record["copy"] = shared
            for key in ("turned", "back"):
                if key in laid.record:
                    laid.record[key] += self.size
        rows = [
            tuple(laid.record.get(name, -1 if name in _ABSENT else 0) for name in TAPE_FIELDS)
            for laid in self._laid
        ]
        return np.array(rows, dtype=OPERATION)

    def _place(self, laid: _Laid) -> None:
        record, x, out = laid.record, laid.x, laid.out
        if record["kind"] == NORMALIZE:
            self._place_norm(laid)
        if out.start < 0:
            out.start = self.reserve(out.size)
        record |= {"x": _start(x), "out": out.start, "places": out.places, "outputs": out.width}
        record.setdefault("inputs", x.width)
        if laid.other is not None:
            record["other"] = _start(laid.other)
        if record.get("pad"):
            record["padded"] = self.reserve(record["wide"] ** 2 * x.width)
        if record["kind"] == LSTM:
            record["cells"] = self.reserve(10 * out.size + 2 * out.width)

    def _place_norm(self, laid: _Laid) -> None:
        """Normalize in place what nothing else reads; where that is all, it is the output, too."""
        record, x, out = laid.record, laid.x, laid.out
        readers = [other for other in self._laid for value in other.inputs if value.owner is x]
        maker = next(other for other in self._laid if other.out is x)
        if len(readers) == 1 and maker.record["kind"] in (CONVOLVE, DEPTHWISE):
            record["hat"] = x.start
        else:
            record["hat"] = self.reserve(out.size)
        record["moments"] = self.reserve(2 * record["each"] * out.width)
        if record["follows"] == PLAIN and record["weight"] < 0 and record["bias"] < 0:
            out.start = record["hat"]

    def _place_back(self) -> None:
        """Give every derivative memory from its first use to its last, on the way back."""
        free: list[tuple[int, int]] = []
        sizes: dict[TapeValue, tuple[int, int]] = {}
        last = self._laid[-1].out
        self._borrow(last, free, sizes)
        for laid in reversed(self._laid):
            if laid.record["kind"] in (TAKE, EMBED):
                laid.record["d_out"] = laid.out.owner.d
                continue
            laid.record |= {"d_out": laid.out.owner.d, "dx": -1, "d_other": -1}
            for value, key, first in zip(
                laid.inputs, ("dx", "d_other"), ("fresh", "fresh_other"), strict=False
            ):
                owner = value.owner
                if owner is self._input:
                    continue
                if owner.d < 0:
                    self._borrow(owner, free, sizes)
                    laid.record[first] = owner.size
                laid.record[key] = owner.d
            free.append(sizes[laid.out.owner])

    def _borrow(
        self, value: TapeValue, free: list[tuple[int, int]], sizes: dict[TapeValue, tuple[int, int]]
    ) -> None:
        fitting = sorted((size, start) for size, start in free if size >= value.size)
        if fitting:
            free.remove(fitting[0])
            place = fitting[0]
        else:
            place = (value.size, self.reserve(value.size))
        value.d = place[1]
        sizes[value] = place


_ABSENT = ("dx", "d_other", "weight", "bias", "turned", "recurrent", "back")


def _value(places: int, channels: int, side: int = 0) -> TapeValue:
    return TapeValue(places, channels, -(-channels // PAD) * PAD, side, np.arange(channels))


def _side_by_side(value: TapeValue) -> None:
    """Raise Unfit unless a place's channels are the first of a whole number of lanes."""
    if value.base is not None or value.width % PAD:
        raise Unfit


def _filled(indices: _Indices, width: int) -> _Indices:
    filled = np.full(width, -1)
    filled[: len(indices)] = indices
    return filled


def _start(value: TapeValue) -> int:
    return value.owner.start


def _window(x: TapeValue, side: int, kernel: int, stride: int, pad: int) -> dict[str, int]:
    return {
        "lines": side,
        "across": side,
        "side": x.side,
        "wide": x.side + 2 * pad,
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
    }


def indices_of(shapes: Sequence[tuple[int, ...]]) -> list[_Indices]:
    """Return, for parameters of these shapes, the places of their numbers in the flat vector."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    pairs = zip(shapes, ends, strict=True)
    return [np.arange(end - math.prod(shape), end).reshape(shape) for shape, end in pairs]
