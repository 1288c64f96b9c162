"""The layout of November 2026.

`src/tacit` is nearly flat; the processes are in a top-level package `services`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import typer.main
from fastapi import FastAPI
from services.aggregator import metrics
from services.cli import INTERRUPTED
from services.cli import app as _commands
from services.cli import main as command_line
from services.commands.replay import fold as fold_journal
from services.edge.main import schema_hash
from services.figures import files as figures
from services.figures.asked import Asked
from services.figures.sweep import measure
from services.pki.authority import Authority as _Authority
from services.pki.enrollment import Desk as _Desk
from services.pki.enrollment import create_app as _enrolment
from services.runtime import entries
from services.runtime.journal import Header, Writer
from services.runtime.plans import by_name as plans_by_name
from services.runtime.settings import AggregatorSettings, EdgeSettings
from services.runtime.state import loads as read_snapshot
from services.runtime.store import Snapshot
from services.runtime.store.memory import MemoryStore
from services.runtime.store.rules import Limits
from services.runtime.weights import weights
from services.simulation import parts, simulate
from tacit._pb import wire_pb2 as pb
from tacit.algorithm_sections import Gossip as GossipSection
from tacit.algorithm_sections import Vafl as VaflSection
from tacit.algorithms.adp2sgd import Peer, Worker
from tacit.algorithms.server import ServerRole
from tacit.algorithms.vafl_party import Party
from tacit.messages import (
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
    Terms,
    Update,
)
from tacit.privacy.plan import Released, Releaser
from tacit.simulate import Simulator, received
from tacit.vertical import Embed, Feedback, Part, Request, Roster
from torch import Tensor

from tacit import config, datasets, errors, topics, wire, wire_peers
from tacit.algorithms import roles
from tacit.config import RunFile
from tacit.models import Model
from tacit.privacy import embeddings as _embeddings
from tacit.privacy import gdp
from tacit.privacy import plan as _plan
from tacit.privacy import trained as _trained
from tacit.privacy.accounting import History, Spend, calibrate, epsilon_pld, epsilon_rdp
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.policy import Policy
from tacit.privacy.sampling import Random
from tacit.privacy.trusted import Trusted
from tests.golden import test_same_bits_of_peers as _peers
from tests.golden.harness import MqttRun, accepted, make_edge
from tests.golden.harness import in_process as in_arrival_order
from tests.golden.test_same_bits import keep_journal
from tests.golden.test_same_bits_of_peers import Watched
from tests.golden.test_same_bits_of_peers import in_process as peers_in_order
from tests.integration.rest import Rig as AggregatorRig
from tests.integration.servers import mosquitto


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


def released(
    vector: Tensor, scale: float, clip: float, spent: History, charged: Charged
) -> Released:
    """A sealed vector that nobody has paid for, to be encoded."""
    return Released(vector, scale, clip, spent, charged, _plan._SEAL)


def shared(vector: Tensor) -> _trained.Shared:
    """A peer's sealed vector."""
    return _trained.Shared(vector, _trained._SEAL)


def embedded(
    rows: Tensor, vectors: Tensor, spent: History, charged: Charged
) -> _embeddings.ReleasedEmbedding:
    """A party's sealed embeddings."""
    return _embeddings.ReleasedEmbedding(rows, vectors, spent, charged, _embeddings._SEAL)


def commands() -> object:
    """The root of the command line, as click has it."""
    return typer.main.get_command(_commands)


def kept_snapshot(rig: Any) -> Snapshot | None:
    """What this aggregator's store has."""
    return rig.driver.store.snapshot()


def enrolment(folder: Path) -> FastAPI:
    """The second REST interface."""
    return _enrolment(_Desk(_Authority.create(folder)))


def dataset_of(run: RunFile) -> str:
    """The name of a run's data, as its ledgers have it."""
    return run.data.dataset
