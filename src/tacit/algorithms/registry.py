"""Make the roles of any algorithm from a run's definition."""

from __future__ import annotations

from typing import Any

from tacit.algorithms.base.algorithm import Algorithm
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_judge import EdgeJudge
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.owner import EdgeFactory, Owner
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.server_trial import tried
from tacit.algorithms.own.unloaded import Unloaded, UnloadedAlgorithm
from tacit.config.algorithm_entries import HasSettings, built_in, is_own, own
from tacit.config.definition import Definition
from tacit.datasets import PrivateRows
from tacit.models import Model
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.release import Releaser


def algorithm(definition: Definition[Any]) -> Algorithm:
    """Return the algorithm of a run. Raises ConfigError where a user's own cannot be loaded."""
    section = definition.algorithm
    if isinstance(section, Unloaded):
        return UnloadedAlgorithm()
    kind: type[HasSettings]
    if is_own(section.name):
        kind = own(section.name, definition.folder)[0]
    else:
        kind = built_in(section.name)
    assert issubclass(kind, Algorithm)
    return kind()


def server(
    definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
) -> ServerRole:
    """Return the server role of a run, at its beginning.

    labelled: the records that the server of a vertical run needs. Raises ConfigError where a
    vertical run has none.
    """
    named = algorithm(definition)
    section = definition.algorithm
    if is_own(section.name) and not isinstance(section, Unloaded):
        return tried(definition, lambda: named.server(definition, model, labelled))
    return named.server(definition, model, labelled)


def edge(
    definition: Definition[Any],
    name: str,
    data: PrivateRows,
    model: Model,
    releaser: Releaser,
    device: str = "cpu",
    *,
    rows_alone: bool = True,
    kind: EdgeFactory | None = None,
    ways: Ways | None = None,
    held_out: PrivateRows | None = None,
) -> EdgeRole:
    """Return the role of edge `name` of a run, which holds the rows `data`.

    `tacit edge`, the audit, the simulator and the golden runs all make their edges with it, so that
    none goes another way than the others unless it asks for one. rows_alone: as for `private_sum`,
    and False for an owner's setting and the simulator. kind, ways: instead of the algorithm's own,
    for the audit's mutants. held_out: the rows on which it judges models. Raises
    ConfigError for a vertical run, which has no edges; PrivacyError
    as `private_sum`.
    """
    owner = Owner(name, data, model, releaser, device, rows_alone, kind, ways, definition.folder)
    section = definition.algorithm
    if isinstance(section, AlgorithmSettings):  # an edge runs none of an own algorithm's code
        role = section.task(definition.privacy.noise_at).role(owner, definition.run.updates)
    else:
        role = algorithm(definition).edge(definition, owner)
    if definition.judging is not None and held_out is not None:
        most = releaser.plan.most_rows
        way = (ways or WAYS).judged
        role.judge = EdgeJudge(definition.judging, held_out, most, model, releaser, device, way)
    if definition.plans.own_rows is not None:
        role.run_rate = definition.terms.sampling_rate
    return role
