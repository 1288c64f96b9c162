"""The names and labels of a vertical run's records, which only its aggregator has.

Noisy labels are drawn once and kept.
"""

from __future__ import annotations

import hashlib
import logging
import math
from functools import partial
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tacit import datasets
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.vertical_settings import Vertical
from tacit.datasets.alignment import NameHashes
from tacit.errors import PrivacyError
from tacit.privacy.noise.labels import randomised_response
from tacit.privacy.noise.randomness import Random
from tacit_services.disk import files
from tacit_services.journal import snapshot_file as state_file

log = logging.getLogger("tacit.labelled_records")


def load(vertical: Vertical, data: Path | None, salt: str, labels: Path) -> LabelledRecords:
    """Return all records of the run, training split first. labels: the file of noisy labels.

    Raises ConfigError, DataError, PrivacyError.
    """
    epsilon = vertical.settings.label_epsilon
    if (own := vertical.own) is not None:
        if epsilon is None:
            return vafl_algorithm.own_records(own, salt.encode())
        drawn = partial(_drawn, labels, own.target.outputs, epsilon)
        return vafl_algorithm.own_records(own, salt.encode(), drawn, epsilon)
    train, test = datasets.splits(vertical.definition.source.name, data)
    records = vafl_algorithm.labelled_records((train, test), salt.encode())
    if epsilon is None:
        return records
    noisy = answers(labels, train.y, train.classes, epsilon, records.names[: len(train)])
    return vafl_algorithm.labelled_records((train, test), salt.encode(), noisy, epsilon)


def _drawn(path: Path, classes: int, epsilon: float, labels: Tensor, whose: NameHashes) -> Tensor:
    return answers(path, labels, classes, epsilon, whose)


def answers(path: Path, labels: Tensor, classes: int, epsilon: float, whose: NameHashes) -> Tensor:
    """Return the randomised response to `labels`: drawn once, then read from `path`.

    It belongs to these records for good: another run, another ε or another training must not draw
    it again, because every draw costs ε anew. Raises PrivacyError when the file is of other records
    or another ε, or is damaged.
    """
    what = {
        "epsilon": epsilon.hex(),
        "records": hashlib.sha256(whose.tobytes()).hexdigest(),
        "classes": str(classes),
    }
    try:
        if path.exists():
            return _stored_answers(path, what)
        drawn = randomised_response(labels, classes, epsilon, Random())
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, safetensors.torch.save({"answers": drawn}, what), files.SECRET)
    except OSError as error:
        raise PrivacyError(
            f"labels {path}: {error.strerror or error}; they must be drawn once only"
        ) from error
    log.info("drew %d noisy labels (epsilon=%g), kept in %s", len(drawn), epsilon, path)
    return drawn


def _stored_answers(path: Path, what: dict[str, str]) -> Tensor:
    content = path.read_bytes()
    try:
        stored = state_file.metadata(content)
        drawn = safetensors.torch.load(content)["answers"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise PrivacyError(
            f"labels {path}: damaged ({error}); drawing them again would cost their budget"
        ) from error
    if stored != what:
        epsilon = float.fromhex(stored.get("epsilon", "nan"))
        if math.isfinite(epsilon):
            was = f"epsilon={epsilon:g}"
        else:
            was = "something else"
        raise PrivacyError(
            f"labels {path}: drawn for {was} or other records; another draw would add to what "
            f"they cost"
        )
    return drawn
