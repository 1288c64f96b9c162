"""Frozen features: public steps of one record alone.

Guarantee: a record's features are a function of that record and of public constants alone, to the
bit. They are computed one record at a time, in memory of their own, so that neither company nor
place can change how a kernel rounds; so they cost no privacy.
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from tacit.datasets.features import scattering, upright
from tacit.datasets.features.front import Front
from tacit.datasets.features.graph_front import GraphFront
from tacit.datasets.features.public_basis import Projection
from tacit.datasets.features.standardise import Standardise
from tacit.errors import ConfigError

FeatureStep = Literal["upright", "scattering"] | Standardise | Projection | Front | GraphFront
Features = Literal["none", "scattering"] | tuple[FeatureStep, ...]


def steps_of(features: Features) -> tuple[FeatureStep, ...]:
    """Return the steps, in their order."""
    if isinstance(features, tuple):
        return features
    if features == "none":
        return ()
    return (features,)


def shape_with(features: Features, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one record after `features`.

    Raises ConfigError if they do not fit `shape`.
    """
    for step in steps_of(features):
        if isinstance(step, str):
            shape = (upright if step == "upright" else scattering).shape_of(shape)
        else:
            shape = step.shape_of(shape)
    return shape


def apply(features: Features, records: Tensor, *, private: bool = False) -> Tensor:
    """Return `records` (n, *shape) float32, or their features.

    Features have shape (n, *shape_with(features, shape)). Raises as `shape_with`. A record that a
    front's trusted code raises at raises ConfigError. Of `private` ones its features are nan
    instead, so that its gradient is not finite and counts as zero: what one record does must not
    end an edge.
    """
    if not (steps := steps_of(features)):
        return records
    shape = shape_with(features, tuple(records.shape[1:]))
    outputs = records.new_empty((len(records), *shape))
    for record, out in zip(records, outputs, strict=True):
        try:
            out.copy_(_of_record(steps, record.clone()))
        except ConfigError:
            if not private:
                raise
            out.fill_(math.nan)
    return outputs


def _of_record(steps: tuple[FeatureStep, ...], record: Tensor) -> Tensor:
    for step in steps:
        if isinstance(step, str):
            record = (upright if step == "upright" else scattering).of_image(record)
        else:
            record = step.of_record(record)
    return record
