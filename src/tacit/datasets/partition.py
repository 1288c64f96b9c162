"""The division of rows among edges: disjoint parts that together cover every row exactly once.

A part must never move: if two edges shared a row, each would spend its own budget on the same
person. The division therefore depends on the arguments alone: on numpy's RandomState, whose streams
are frozen across versions, and on exact fractions.

Parts 0 to shards-1 are the edges of the run; `spare` further parts are for edges that join later.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from tacit.errors import ConfigError

Method = Literal["iid", "dirichlet", "shards", "natural"]
_Index = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


def shard(
    labels: torch.Tensor,
    index: int,
    *,
    shards: int,
    method: Method,
    seed: int,
    alpha: float = 0.5,
    spare: int = 0,
    spare_weight: float = 0.25,
) -> torch.Tensor:
    """Return the row numbers (int64, ascending) of part `index`, of labels (n,).

    Raises ConfigError as `all_shards`, and for an index outside [0, shards + spare).
    """
    parts = all_shards(
        labels,
        shards=shards,
        method=method,
        seed=seed,
        alpha=alpha,
        spare=spare,
        spare_weight=spare_weight,
    )
    if not 0 <= index < len(parts):
        raise ConfigError(
            f"shard index = {index} must be in [0, {len(parts)}) (edges.count + data.spare)"
        )
    return parts[index]


def all_shards(
    labels: torch.Tensor,
    *,
    shards: int,
    method: Method,
    seed: int,
    alpha: float = 0.5,
    spare: int = 0,
    spare_weight: float = 0.25,
) -> list[torch.Tensor]:
    """Return all `shards + spare` parts: row numbers (int64, ascending), none of them empty.

    `iid` cuts a random permutation. A spare part is `spare_weight` of a main one. `dirichlet` deals
    each class by proportions from Dirichlet(alpha · weights) (Hsu et al., arXiv:1909.06335). A
    small alpha gives more skew. `shards` sorts by label and deals two contiguous pieces to each
    part (McMahan et al., arXiv:1602.05629). `natural` takes `labels` as the numbers of natural
    groups (`load_groups`) and keeps each whole. As many parts as groups get one each, in the order
    of the numbers. Fewer parts get them in turn, the largest first, for every seed.

    Raises ConfigError for a bad argument, and when there are more parts than rows, or than groups
    with `natural`.
    """
    weights = _weights(shards, spare, spare_weight)
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ConfigError(f"data.alpha = {alpha} must be a positive number")
    if len(weights) > len(labels):
        raise ConfigError(
            f"edges.count + data.spare = {len(weights)} is more than the {len(labels)} rows"
        )
    if labels.dim() != 1 and method in ("dirichlet", "shards"):
        raise ConfigError(
            f"data.partition = {method!r} needs one label for each row; text has iid and natural"
        )
    rng = _rng(method, seed)
    classes = labels.numpy()
    if method == "iid":
        parts = _cut(rng.permutation(len(classes)), weights)
    elif method == "dirichlet":
        parts = _dirichlet(classes, weights, alpha, rng)
    elif method == "shards":
        parts = _by_label(classes, weights, rng)
    elif method == "natural":
        parts = _by_group(classes, len(weights), spare)
    else:
        raise ConfigError(
            f"data.partition = {method!r} is not known; use one of: iid, dirichlet, shards, natural"
        )
    return [torch.from_numpy(np.sort(part)) for part in _fill_empty(parts)]


def nominal_size(rows: int, *, shards: int, spare: int, spare_weight: float) -> int:
    """Return n_pub: the public size of a main part, floor(rows / (shards + spare · spare_weight)).

    A privacy plan divides by this, never by the exact size of an edge's part. Raises ConfigError.
    """
    weight = _spare_weight(shards, spare, spare_weight)
    size = math.floor(rows / (shards + spare * weight))
    if size < 1:
        raise ConfigError(
            f"edges.count = {shards} leaves less than one of {rows} rows to each part"
        )
    return size


def _weights(shards: int, spare: int, spare_weight: float) -> list[Fraction]:
    weight = _spare_weight(shards, spare, spare_weight)
    return [Fraction(1)] * shards + [weight] * spare


def _spare_weight(shards: int, spare: int, spare_weight: float) -> Fraction:
    """Return the weight of a spare part beside a main one's 1. Raises ConfigError for a bad one."""
    if shards < 1:
        raise ConfigError(f"edges.count = {shards} must be at least 1")
    if spare < 0:
        raise ConfigError(f"data.spare = {spare} must be at least 0")
    if not (spare_weight > 0 and math.isfinite(spare_weight)):
        raise ConfigError(f"data.spare_weight = {spare_weight} must be a positive number")
    # The decimal as written (0.1, not its binary neighbour), so that sizes are those that a person
    # computes.
    return Fraction(str(spare_weight))


def _rng(method: str, seed: int) -> np.random.RandomState:
    digest = hashlib.sha256(f"tacit partition|{method}|{seed}".encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, "<u4").astype(np.uint32))


def _cut(rows: _Index, weights: list[Fraction]) -> list[_Index]:
    """Return consecutive pieces in proportion to the weights.

    A piece has at least the floor of its share.
    """
    unit = len(rows) / sum(weights)
    edges = []
    total = Fraction(0)
    for weight in weights[:-1]:
        total += weight
        edges.append(math.floor(total * unit))
    return np.split(rows, edges)


def _dirichlet(
    classes: _Index, weights: list[Fraction], alpha: float, rng: np.random.RandomState
) -> list[_Index]:
    concentration = alpha * np.array([float(weight) for weight in weights])
    pieces: list[list[_Index]] = [[] for _ in weights]
    for label in np.unique(classes):
        rows = rng.permutation(np.flatnonzero(classes == label))
        shares = _dirichlet_sample(concentration, rng)
        edges = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for part, piece in zip(pieces, np.split(rows, edges), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in pieces]


def _dirichlet_sample(concentration: _Floats, rng: np.random.RandomState) -> _Floats:
    """Return a Dirichlet sample, computed in logarithms.

    For a small alpha every gamma variate underflows, and 0/0 is no share. In distribution, Gamma(a)
    = Gamma(a + 1) · U^(1/a) (Marsaglia and Tsang, doi:10.1145/358407.358414, section 6).
    """
    uniform = 1.0 - rng.random_sample(len(concentration))  # (0, 1]: its logarithm is finite
    logs = np.log(rng.standard_gamma(concentration + 1.0)) + np.log(uniform) / concentration
    shares = np.exp(logs - logs.max())
    normalised: _Floats = shares / shares.sum()
    return normalised


def _by_label(classes: _Index, weights: list[Fraction], rng: np.random.RandomState) -> list[_Index]:
    mixed = rng.permutation(len(classes))
    rows = mixed[np.argsort(classes[mixed], kind="stable")]
    owners = rng.permutation(np.repeat(np.arange(len(weights)), 2))
    pieces = _cut(rows, [weights[owner] for owner in owners])
    return [
        np.concatenate(
            [piece for piece, owner in zip(pieces, owners, strict=True) if owner == part]
        )
        for part in range(len(weights))
    ]


def _by_group(groups: _Index, parts: int, spare: int) -> list[_Index]:
    names, sizes = np.unique(groups, return_counts=True)
    if spare:
        raise ConfigError(
            f"data.spare = {spare}: data.partition = 'natural' deals whole groups and keeps none"
        )
    if parts > len(names):
        raise ConfigError(
            f"edges.count = {parts} is more than the {len(names)} groups of data.partition = "
            f"'natural'"
        )
    if parts < len(names):
        names = names[np.argsort(-sizes, kind="stable")]
    return [np.flatnonzero(np.isin(groups, names[part::parts])) for part in range(parts)]


def _fill_empty(parts: list[_Index]) -> list[_Index]:
    """Give each empty part one row of the largest: an edge without rows could never take part."""
    sizes = [len(part) for part in parts]
    for empty in [part for part, size in enumerate(sizes) if size == 0]:
        largest = max(range(len(parts)), key=lambda part: len(parts[part]))
        parts[empty], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts
