"""What a run was worth to a member: exact figures on its own rows, for its owner's eyes alone.

The federation's model stands beside one that this owner's rows have made alone. Both are judged on
the same rows, which the second has not learnt from. Where the run judges at its edges they are
those that it has held out, so the first has not either. Nothing is sent. Nothing is written but the
model and the offer's files, which the host has for all who took part.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.config.asked_table import AskedTable
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.datasets.edge_rows import EdgeRows
from tacit.datasets.held_out import UnitSplit
from tacit.errors import ConfigError, DataError, ServiceError
from tacit.exported import stored
from tacit.models import Model, best_constant
from tacit.models.metrics import chosen, constant_errors
from tacit.models.plain_training import trained_alone
from tacit.privacy import ledger
from tacit_services.disk import files
from tacit_services.identity import own_ledgers
from tacit_services.member.host_client import HostClient
from tacit_services.member.judge import MOST_FILES
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.report_figures import JudgedBoth, OwnReport
from tacit_services.member.run_here import definition_of
from tacit_services.offers.offer_reading import read_offer
from tacit_services.offers.submission import FILES
from tacit_services.transport.proxy import Proxies

_MODEL = "model.safetensors"
_HEADER = 1 << 20  # bytes of that file beside its numbers
_EDGE = 0  # a member's data is one edge with a file of its own
_JUDGED = 0.2  # of the units
_FEWEST = 10  # units, or there is nothing to divide
_SEED = 0
UnitNumbers = np.ndarray[Any, np.dtype[np.int64]]  # their numbers


def own_report(state: MemberState, run: str, proxies: Proxies, home: Path) -> OwnReport:
    """Return the report on a run that has ended.

    home: the user's data folder, where the ledger is. Raises ConfigError, DataError, PrivacyError,
    and ServiceError where the host has to be asked and does not answer.
    """
    membership = state.membership()
    if membership is None:
        raise ConfigError(f"--state {state.folder}: is of no member")
    if membership.published is not None:
        raise ConfigError(f"{membership.name}: has no rows of its own, but a part of public ones")
    if not (state.folder / "runs" / run).is_dir():
        raise ConfigError(f"run {run}: no such offer here; `tacit offers` lists them")
    _bring_files(state, run, membership, proxies)
    definition = definition_of(state, run).define()
    if isinstance(definition.data, AskedTable):
        raise ConfigError(f"run {run}: has asked questions; there is no model to report on")
    model = definition.build_model()
    params = _params(state, run, model, membership, proxies)
    split = None if definition.judging is None else _split(membership, home)
    judged, others = _divided(definition, model, state.run(run), split)
    alone = trained_alone(model, model.init(definition.run.seed), others, _SEED)
    metrics = _compared(definition, model, params, alone, judged)
    return OwnReport(run, len(judged), len(others), metrics, split is not None)


def _bring_files(state: MemberState, run: str, membership: Membership, proxies: Proxies) -> None:
    """Fetch the files of an offer that were let go of when its run was over."""
    folder = state.run(run)
    offer = read_offer(folder)
    lacking = {n: d for n, d in offer.files.items() if not (folder / FILES / n).is_file()}
    if not lacking:
        return
    web = membership.public_web
    with HostClient(membership.url, state.tls, proxies, public_web=web) as host:
        for name, digest in lacking.items():
            host.fetch(run, digest, folder / FILES / name, MOST_FILES)


def _split(membership: Membership, home: Path) -> UnitSplit | None:
    """Return how the ledger of a member's data holds units out; None: it does not."""
    account = own_ledgers.account(membership.dataset, home)
    if account is not None:
        for path in account.edges.values():
            for key, share in ledger.read_splits(path).values():
                return UnitSplit(key, share)
    return None


def _params(
    state: MemberState, run: str, model: Model, membership: Membership, proxies: Proxies
) -> torch.Tensor:
    """Return the parameters of the run's model, of the host, or as they were fetched before."""
    path = state.run(run) / _MODEL
    web = membership.public_web
    try:
        with HostClient(membership.url, state.tls, proxies, public_web=web) as host:
            content = host.model(run, model.size * torch.float64.itemsize + _HEADER)
    except ServiceError:
        if not path.is_file():
            raise
    else:
        files.write(path, content, files.SECRET)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return stored.weights(path, digest, model, model.state(torch.zeros(model.size)))


def _divided(
    definition: Definition[Any], model: Model, folder: Path, split: UnitSplit | None
) -> tuple[Dataset, Dataset]:
    """Return the rows to judge on, and the others. All rows of a unit are on one side.

    split: that of the run, or None where it has learnt from all units: they are then divided at
    random. Raises DataError for too few units.
    """
    with tempfile.TemporaryDirectory(prefix="report-", dir=folder) as keep:
        part = definition.source.edge(_EDGE, None, Path(keep), split)
        rows = part.rows.for_edge(model.labels_below)
        if part.held_out is None:
            order = np.random.default_rng(_SEED).permutation(rows.records)
            apart = max(1, round(_JUDGED * rows.records))
            sides = [(rows, order[:apart]), (rows, order[apart:])]
        else:
            held_out = part.held_out.for_edge(model.labels_below)
            sides = [(each, np.arange(each.records)) for each in (held_out, rows)]
        _check_enough(sides)
        name = definition.source.name
        judged, others = (_copied(each, units, model.classes, name) for each, units in sides)
    return judged, others


def _check_enough(sides: Sequence[tuple[EdgeRows, UnitNumbers]]) -> None:
    judged, others = (len(units) for _, units in sides)
    if judged + others < _FEWEST or not judged:
        raise DataError(
            f"{judged + others} units, of which {judged} are judged on: too few to divide; "
            f"{_FEWEST} are needed"
        )


def _copied(rows: EdgeRows, units: UnitNumbers, classes: int, name: str) -> Dataset:
    """Return these units as a data set that lasts when the edge's folder is gone."""
    side = _rows_of(rows, units)
    return Dataset(rows.x[side].clone(), rows.y[side].clone(), classes, name)


def _rows_of(rows: EdgeRows, units: UnitNumbers) -> torch.Tensor:
    """Return the numbers of the rows that these units have."""
    if rows.units is None:
        return torch.from_numpy(units)
    starts, order = rows.units.starts, rows.units.order
    return torch.from_numpy(np.concatenate([order[starts[u] : starts[u + 1]] for u in units]))


def _compared(
    definition: Definition[Any],
    model: Model,
    params: torch.Tensor,
    alone: torch.Tensor,
    judged: Dataset,
) -> dict[str, JudgedBoth]:
    target = definition.source.target
    metrics = chosen((), target, definition.folder)  # a run's own are code, which lies at the host
    _, of_federation = metrics.measure(model, params, judged)
    _, of_alone = metrics.measure(model, alone, judged)
    constant = constant_errors(judged.y, target)
    best = best_constant(model, judged)
    if best is not None and best.accuracy is not None:
        constant["accuracy"] = best.accuracy
    return {
        name: JudgedBoth(value, of_alone.get(name), constant.get(name))
        for name, value in of_federation.items()
    }
