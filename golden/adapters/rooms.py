"""The names that the layouts of this folder have in common: all but those of the privacy code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main
from fastapi import FastAPI
from tacit_services.aggregator import entries
from tacit_services.aggregator.api import metrics
from tacit_services.cli.main import app as _commands
from tacit_services.cli.main import main as command_line
from tacit_services.cli.replay import fold as fold_journal
from tacit_services.enrollment.authority import CertificateAuthority as _Authority
from tacit_services.enrollment.rest import RegistrationAuthority as _Desk
from tacit_services.enrollment.rest import create_app as _enrolment
from tacit_services.journal.journal_file import Header, Writer
from tacit_services.journal.snapshot_file import loads as read_snapshot
from tacit_services.journal.store import Snapshot
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.journal.store.rules import Limits
from tacit_services.journal.weights import weights
from tacit_services.launch import INTERRUPTED
from tacit_services.settings import AggregatorSettings, EdgeSettings
from tacit_services.testbed.simulate import rows_by_edge as _rows_by_edge
from tacit_services.testbed.simulate import simulate as _simulate
from torch import Tensor

from tacit import config, datasets, errors
from tacit.algorithms import registry as _registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.worker import Worker
from tacit.algorithms.vafl import vertical_settings as _vertical
from tacit.algorithms.vafl.labelled_records import LabelledRecords
from tacit.algorithms.vafl.party import Party
from tacit.config import RunFile
from tacit.config.algorithms import Gossip as GossipSection
from tacit.config.algorithms import Vafl as VaflSection
from tacit.models import Model
from tacit.protocol import topics, wire_down, wire_up
from tacit.protocol import wire as _wire
from tacit.protocol import wire_gossip as _wire_gossip
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import (
    Answer,
    GlobalModel,
    Gossip,
    Halt,
    Hello,
    Missing,
    Outgoing,
    Proposal,
    Push,
    Report,
    Retired,
    Share,
    Update,
)
from tacit.protocol.vertical import Embed, Feedback, Part, Request, Roster
from tacit.simulation.client_server import Simulator as _Simulator
from tacit.simulation.client_server import received
from tests.golden import test_same_bits_of_peers as _peers
from tests.golden.harness import MqttRun, accepted, make_edge
from tests.golden.harness import in_process as in_arrival_order
from tests.golden.test_same_bits import keep_journal
from tests.golden.test_same_bits_of_peers import Watched
from tests.golden.test_same_bits_of_peers import in_process as peers_in_order
from tests.helpers.rest import Rig as AggregatorRig
from tests.helpers.servers import mosquitto

# The laboratory is a package of its own since the fifth layout. An older tree, which has figures in
# its services, may find this one's installed.
if TYPE_CHECKING or find_spec("tacit_services.figures") is None:
    from tacit_lab.papers.figures import figure_file
    from tacit_lab.papers.figures.sweep import measure
    from tacit_lab.papers.figures.untrained_points import UntrainedPoint as Asked
else:
    from tacit_services.figures import figure_file
    from tacit_services.figures.sweep import measure
    from tacit_services.figures.untrained_points import UntrainedPoint as Asked


def _digest(message: Gossip) -> str:
    """Digest a peer's message as the harness does, but alike in every process.

    protobuf gives a map in any order.
    """
    said = [type(message).__name__]
    for name in message.__slots__:
        value = getattr(message, name)
        value = sorted(value.items()) if isinstance(value, dict) else value
        said.append(value.numpy().tobytes().hex() if isinstance(value, Tensor) else repr(value))
    return hashlib.sha256("/".join(said).encode()).hexdigest()


_peers.digest = _digest


class wire:  # noqa: N801  (golden's name of a module)
    """What golden uses of the codec of an edge's and a server's messages."""

    up = staticmethod(wire_up.up)
    down = staticmethod(wire_down.down)
    announcement = staticmethod(wire_down.announcement)
    encode = staticmethod(_wire.encode)
    split = staticmethod(_wire.split)
    question = staticmethod(_wire.question)


class wire_peers:  # noqa: N801  (golden's name of a module)
    """What golden uses of the codec of peers' messages."""

    encoded = staticmethod(_wire_gossip.encode_peer_message)


class roles:  # noqa: N801  (a module's name)
    """The roles of a run, by what they were made of before there was a definition."""

    @staticmethod
    def edge(
        run: RunFile, name: str, data: datasets.Dataset, model: Model, releaser: Any
    ) -> EdgeRole:
        """With its rows, and the way of `tacit edge`: an older tree's default was another."""
        return _registry.edge(run.define(), name, data, model, releaser, rows_alone=True)

    @staticmethod
    def server(run: RunFile, model: Model, people: LabelledRecords | None = None) -> ServerRole:
        """At its beginning."""
        return _registry.server(run.define(), model, people)

    @staticmethod
    def people(run: RunFile, splits: Sequence[datasets.Dataset], salt: bytes) -> LabelledRecords:
        """Everybody in a vertical run, with labels in clear."""
        return _registry.people(splits, salt)

    @staticmethod
    def party(run: RunFile, *given: Any) -> Party:
        """With its columns."""
        return _registry.party(_vertical.vertical(run.define()), *given)


def parts(run: RunFile, root: Path | None) -> list[Any]:
    """The rows of every edge."""
    return [part.rows for part in _rows_by_edge(run.define(), root)]


def dataset_of(run: RunFile) -> str:
    """The name of a run's data, as its ledgers have it."""
    return run.source.name


def plans_by_name(run: RunFile) -> Callable[[str], Any]:
    """The plan of an edge by its name."""
    return run.plans().named


def commands() -> object:
    """The root of the command line, as click has it."""
    return typer.main.get_command(_commands)


def enrolment(folder: Path) -> FastAPI:
    """The second REST interface."""
    return _enrolment(_Desk(_Authority.create(folder)))


def kept_snapshot(rig: AggregatorRig) -> Snapshot | None:
    """What this aggregator's store has."""
    return rig.live.journal.store.snapshot()


def schema_hash(model: Model) -> bytes:
    """What a message must carry to be for this model."""
    return model.schema_hash()


class Simulator(_Simulator):
    """The simulator of a run file."""

    def __init__(self, run: RunFile, server: ServerRole, edges: Sequence[EdgeRole | Party]) -> None:
        super().__init__(run.define(), server, edges)
        self.run_file = run


def simulate(run: RunFile, root: Path | None, out: Path, shown: Callable[[Any], None]) -> object:
    """As `tacit simulate` does."""
    return _simulate(run.define(), root, out, shown)


class figures:  # noqa: N801  (a module's name)
    """Figure files, and the runs that they are made of."""

    read = staticmethod(figure_file.read)
    seeded = staticmethod(figure_file.seeded)
    cells = staticmethod(figure_file.plotted_runs)
