"""A run of real roles in one process, whose order of messages is drawn from a seed.

Each message is the bytes that it would be over MQTT, and is read from them. Edges fall behind each
other, come back with a second Hello, and let deadlines pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.own.own_steps import OwnStepsEdge
from tacit.config import RunFile
from tacit.datasets.source import EdgePart
from tacit.errors import ConfigError
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Outgoing, Push, Update
from tacit_services.aggregator import entries
from tacit_services.aggregator.entries import OPERATOR
from tacit_services.conformance.rule import RecordedRule
from tacit_services.journal import snapshot_file
from tacit_services.testbed import simulated_run

RUN = "conformance"
_AGAIN = 0.05  # share of turns in which an edge says Hello again, or a deadline passes
_MESSAGES = 200  # for each version: a run that takes more makes no progress


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """An entry of the journal: its sender, the sender's number, and its bytes."""

    sender: str
    seq: int
    payload: bytes


class Rehearsal:
    """One run of an algorithm on rows that are nobody's secret, with its journal.

    entries: what has entered the journal. pushes: what edges have sent, with the releases that each
    ledger had counted before and after. rules: of edges whose local steps are a rule's.
    """

    def __init__(self, run: RunFile, seed: int, rows: Sequence[EdgePart] = ()) -> None:
        """rows: of each edge; of nobody. Without them, of the run's published data set.

        Raises ConfigError where the run's rows are not published.
        """
        torch.set_num_threads(1)
        self.run = run
        self.definition = run.define()
        if self.definition.algorithm.worker != "edge" or self.definition.algorithm.columns:
            raise ConfigError("tacit conform: checks algorithms whose workers are edges only")
        self.model = self.definition.build_model()
        self.schema = self.model.schema_hash()
        self.server = registry.server(self.definition, self.model)  # it has been tried
        self._algorithm = registry.algorithm(self.definition)
        parts = rows or simulated_run.rows_by_edge(self.definition, None)
        self.edges: dict[str, EdgeRole] = {
            f"edge-{number}": simulated_run.edge(self.definition, self.model, number, part)
            for number, part in enumerate(parts)
        }
        self.rules: dict[str, RecordedRule] = {}
        for name, role in self.edges.items():
            if isinstance(role, OwnStepsEdge):
                self.rules[name] = role.rule = RecordedRule(role.rule)
        self.entries: list[RecordedEntry] = []
        self.pushes: list[tuple[EdgeRole, Push, int, int]] = []
        self._tasks: dict[str, GlobalModel] = {}
        self._seqs = dict.fromkeys((*self.edges, OPERATOR), 0)
        self._random = Random(seed)

    def new_server(self) -> ServerRole:
        """Return the run's server role at its beginning."""
        return self._algorithm.server(self.definition, self.model)

    def play(self) -> None:
        """Play the run to its end. Raises ConfigError where it makes no progress."""
        for name in self.edges:
            self._greet(name)
        most = _MESSAGES * self.definition.run.updates * self.server.uploads
        while not self.server.halted:
            if len(self.entries) > most:
                raise ConfigError(
                    f"{most} messages have led to version {self.server.version} of "
                    f"{self.definition.run.updates}: the run does not end"
                )
            self._turn()

    def _turn(self) -> None:
        name = self._random.choice(list(self.edges))
        timer = self.server.awaited()
        again = self._random.random() < _AGAIN
        if timer is not None and (again or not self._tasks):
            self._enter(OPERATOR, entries.deadline(RUN, timer.number))
        elif again or name not in self._tasks:
            self._greet(name)
        else:
            self._answer(name)

    def _greet(self, name: str) -> None:
        self._tasks.pop(name, None)
        for out in self.edges[name].start():
            self._send(name, out)

    def _answer(self, name: str) -> None:
        role = self.edges[name]
        before = _releases(role)
        for out in role.on_message(self._tasks.pop(name)):
            if isinstance(out.message, Push):
                self.pushes.append((role, out.message, before, _releases(role)))
            self._send(name, out)

    def _send(self, name: str, out: Outgoing) -> None:
        seq = self._seqs[name] + 1
        self._enter(name, wire_up.up(RUN, seq, out.message, self.schema))  # type: ignore[arg-type]

    def _enter(self, sender: str, payload: bytes) -> None:
        message = self.read(payload)
        if isinstance(message, Update) and self.server.screen(message) is not None:
            return
        self._seqs[sender] += 1
        self.entries.append(RecordedEntry(sender, self._seqs[sender], payload))
        for out in self.server.on_message(message):
            if isinstance(out.message, GlobalModel):
                self._tasks[out.to] = out.message

    def read(self, payload: bytes) -> Any:
        """Return an entry's message to the server role."""
        return entries.read(payload, self.schema, self.server.update_size)

    def messages(self) -> Iterator[Any]:
        """Yield the journal's messages, each read anew from its bytes."""
        for entry in self.entries:
            yield self.read(entry.payload)


def _releases(role: EdgeRole) -> int:
    return sum(spend.count for spend in role.releaser.ledger.history())


def digest(role: ServerRole) -> str:
    """Return the SHA-256 (hexadecimal) of a server's whole state."""
    return hashlib.sha256(snapshot_file.dumps(*role.state())).hexdigest()
