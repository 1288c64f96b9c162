"""Stores in which Hellos lie: what nobody believes, and what no aggregator lets in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.journal.store import Appended, NewEntry, Store, open_store

from tacit import config
from tacit.algorithms import registry
from tacit.config import RunFile
from tacit.errors import WireError
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.golden.harness import sha256
from tests.helpers.hostile import HUGE
from tests.helpers.older import unpacked
from tests.helpers.rig import hello_meta

NAME, LIAR = "mapa", "edge-1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Yield a store as 0.2 left it, with the Hello of a liar behind that."""
    folder = unpacked(NAME, tmp_path)
    with closing(open_store(f"sqlite:///{folder}/store.db", NAME)) as opened:
        journal = made(tmp_path, opened)
        journal.take_over()
        lie = pb.Hello(noise_variance=HUGE, mechanism="none", clip_min=1e-300, clip_max=HUGE)
        write(journal, run_of(tmp_path), lie)
        yield opened


def run_of(tmp_path: Path) -> RunFile:
    """Return the run that the store is of."""
    return config.load(tmp_path / NAME / "run.toml")


def made(tmp_path: Path, store: Store) -> RunJournal:
    """Return what an aggregator of this run has before it takes the store over."""
    run = run_of(tmp_path)
    definition, model = run.define(), run.build_model()
    return RunJournal(
        NAME,
        registry.server(definition, model),
        model.schema_hash(),
        model.size,
        store,
        fingerprint=definition.fingerprint,
        snapshot_every=10**6,
    )


def write(journal: RunJournal, run: RunFile, claims: pb.Hello) -> Appended:
    """Write a Hello with these claims into the store."""
    meta, seq = hello_meta(run), journal.last_seqs[LIAR] + 1
    meta.hello.MergeFrom(claims)
    meta.run, meta.edge, meta.seq, meta.schema_hash = NAME, LIAR, seq, journal.schema
    (answer,) = journal.store.append([NewEntry(LIAR, seq, wire.encode(meta))])
    return answer


def test_nothing_that_they_say_counts_after_a_restart(tmp_path: Path, store: Store) -> None:
    journal = made(tmp_path, store)
    journal.take_over()
    role, fresh = journal.role, made(tmp_path, store).role
    assert role.edges[LIAR].hello.noise_variance == HUGE
    assert role.version > 20
    fresh.tau_max = role.tau_max  # of all that edges do, this alone slows MAPA down
    assert role.tau_max < 10
    schedule, expected = role.schedule(), fresh.schedule()
    assert expected["learning_rate"] > 0.01
    assert (schedule["clip"], schedule["learning_rate"]) == (
        expected["clip"],
        expected["learning_rate"],
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"noise_variance": math.nan},
        {"noise_variance": math.inf},
        {"noise_variance": -1.0},
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"delta": math.nan},
        {"clip_max": -math.inf},
        {"spent": [pb.Spend(sampling_rate=math.nan, noise_multiplier=1.0, count=1)]},
        {"spent": [pb.Spend(sampling_rate=0.1, noise_multiplier=math.nan, count=1)]},
        {"spent": [pb.Spend(sampling_rate=1e308, noise_multiplier=1.0, count=1)]},
        {"charged": pb.Charged(count=1, head=b"short")},
    ],
    ids=str,
)
def test_what_no_aggregator_lets_in_stops_the_next_one_before_it_is_folded(
    tmp_path: Path, store: Store, claims: dict[str, object]
) -> None:
    # Given a store into which somebody has written what no aggregator does,
    journal = made(tmp_path, store)
    journal.take_over()
    before = sha256(journal.role)
    answer = write(journal, run_of(tmp_path), pb.Hello(**claims))  # type: ignore[arg-type]
    # when an aggregator takes over, then it says in a line which entry, and has folded the rest.
    successor = made(tmp_path, store)
    with pytest.raises(WireError, match=f"entry {answer.position}: value: ") as error:
        successor.take_over()
    assert "\n" not in str(error.value)
    assert (sha256(successor.role), successor.cursor) == (before, answer.position - 1)
