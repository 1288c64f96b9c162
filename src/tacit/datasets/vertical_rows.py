"""The division of features among vertical parties: disjoint views that together hold every value
once.
"""

from __future__ import annotations

import torch

from tacit.errors import ConfigError


def feature_blocks(columns: int, parties: int, sizes: tuple[int, ...] = ()) -> list[slice]:
    """Return contiguous blocks of `columns`, in order, one for each party.

    They have `sizes`, if those are as many as the parties; else equal sizes, which differ by at
    most one, the longer ones first.
    Raises ConfigError when there are more parties than columns, or for sizes that do not add up.
    """
    if not 1 <= parties <= columns:
        raise ConfigError(
            f"edges.count = {parties} must be in [1, {columns}]: so many columns there are for "
            f"parties to hold"
        )
    if len(sizes) != parties:
        size, longer = divmod(columns, parties)
        sizes = (size + 1,) * longer + (size,) * (parties - longer)
    if sum(sizes) != columns or min(sizes) < 1:
        raise ConfigError(f"blocks of {sizes} columns do not make up {columns}")
    ends = [sum(sizes[:party]) for party in range(parties + 1)]
    return [slice(*ends[party : party + 2]) for party in range(parties)]


def party_view(
    x: torch.Tensor,
    party: int,
    parties: int,
    *,
    quadrants: bool = False,
    sizes: tuple[int, ...] = (),
) -> torch.Tensor:
    """Return what party `party` of `parties` holds of the examples x (n, *shape), without a copy.

    It is a block of the columns of a table (n, c) or a sequence (n, T), or of the rows of images
    (n, depth, rows, columns). Of 28 rows, seven parties hold 4 each. sizes: (`party_columns`) if
    they are not to be equal. quadrants: four parties hold a quarter of the image each, in reading
    order. Raises ConfigError.
    """
    if not 0 <= party < parties:
        raise ConfigError(f"party = {party} must be in [0, {parties})")
    if quadrants:
        if parties != 4 or x.dim() != 4 or x.shape[2] % 2 or x.shape[3] % 2:
            raise ConfigError(
                f"edges.count = {parties} of {tuple(x.shape[1:])}: quadrants are four, of images "
                f"of even sides"
            )
        down, across = (feature_blocks(side, 2) for side in x.shape[2:])
        return x[:, :, down[party // 2], across[party % 2]]
    axis = 2 if x.dim() == 4 else 1
    block = feature_blocks(x.shape[axis], parties, sizes)[party]
    return x.narrow(axis, block.start, block.stop - block.start)
