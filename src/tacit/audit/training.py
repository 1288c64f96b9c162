"""The audit's tests D and E: a whole training seen by one attacker, and accountants compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from tacit.algorithms.mapa.mapa import MapaServer
from tacit.audit.adapters import EdgeAdapter, make
from tacit.audit.rows_in_messages import alone, pixels
from tacit.audit.statistics import SHARE, Finding, ScoreValues, one_run_epsilon, one_run_p_value
from tacit.audit.subject import CLIP, DELTA, SCHEMA, Randomness, Subject
from tacit.audit.worlds import received
from tacit.config import parse
from tacit.datasets import Dataset
from tacit.models import build
from tacit.privacy.accounting import Spend, certified_pushes, epsilon_pld, epsilon_rdp
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import GlobalModel, Hello, Update

CANARIES = 1000
GUESSES = 200
ROUNDS = 100
_DELTA = 5e-8  # the test pays 2mδ, which must stay well below SHARE
_NOISE = {"knorm": 11.0}  # z of a claim near 1, beyond which 200 guesses prove little
_GAUSSIAN = 9.3
_RUN = f"""
run.updates = {ROUNDS}
data.dataset = "digits"
model.name = "logistic"
algorithm.name = "mapa"
edges.count = 3
[privacy]
batch = 100.0
clip = {CLIP}
clip_min = {CLIP}
clip_max = {CLIP}
# The server and the plan are taken of this run. It has 3 edges, as the one audited holds about half
# of the canaries.
"""

Epsilon = Callable[[float, float, int, float], float]  # (q, z, pushes, δ)


def training(subject: Subject, source: Randomness) -> list[Finding]:
    """Bound the ε of a whole training by guesses of 1,000 records' membership (D).

    Steinke et al. (arXiv:2305.08846): every record is in the data by a coin of its own. The
    attacker reads the wire, adds up what points along a record's gradient, and calls the 100
    highest in and the 100 lowest out. The number of guesses is fixed beforehand.
    """
    z = _NOISE.get(subject.mechanism, _GAUSSIAN)
    run = parse(_RUN + f'mechanism = "{subject.mechanism}"\nnoise_multiplier = {z}\n', "audit")
    model = build("logistic", (1, 1, CANARIES), 2)
    rate = run.plan(0).sampling_rate
    subject = subject.but(model=model, rate=rate, z=z, batch=run.privacy.batch, most=CANARIES)
    coins = source.random().words(CANARIES) >> np.uint64(63) == 1
    rows = pixels(CANARIES)
    drawn = torch.from_numpy(coins)
    adapter = make(subject, Dataset(rows.x[drawn], rows.y[drawn], 2, "audit"), source)
    scores = _scores(adapter, MapaServer(run.define(), model))
    order = np.argsort(scores)
    half = GUESSES // 2
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    claim = epsilon_pld([Spend(rate, z, ROUNDS, subject.mechanism)], _DELTA)
    measured = one_run_epsilon(right, GUESSES, CANARIES, _DELTA)
    alarm = one_run_p_value(right, GUESSES, CANARIES, claim, _DELTA) < SHARE
    return [
        Finding("one whole training", subject.name, "ε", claim, measured, alarm, subject.honest)
    ]


def _scores(adapter: EdgeAdapter, server: MapaServer) -> ScoreValues:
    """Return what the attacker adds up for each record over a whole run of server and edge."""
    hello = adapter.edge.start()[0].message
    size = adapter.edge.model.size
    assert isinstance(hello, Hello)
    (out,) = server.on_message(hello)
    scores = np.zeros(CANARIES)
    while isinstance(out.message, GlobalModel):
        payload = adapter.ask(received(out.message, adapter.edge.model))
        assert payload is not None
        update = wire_up.read_up(wire.decode(payload), SCHEMA, size)
        assert isinstance(update, Update)
        scores += alone(update.vector.to(torch.float64), CANARIES)
        (out,) = server.on_message(update)
    return scores


# -- E ---------------------------------------------------------------------------------------------

HISTORIES = ((0.01, 1.0, 500), (0.05, 2.14, 100), (0.02, 0.8, 200))  # (q, z, pushes)


def accountants(second: Epsilon | None, first: Epsilon | None = None) -> list[Finding]:
    """Check PLD against another library's PRV to 0.02, and RDP and T_max against PLD (E).

    RDP is never below PLD, and T_max is monotone.

    second: Opacus's PRV accountant, if there is one. first: what is checked against it,
    `epsilon_pld`.
    """
    first = first or _pld
    pld = [first(q, z, count, DELTA) for q, z, count in HISTORIES]
    if second is None:
        agreement = Finding(
            "PLD v PRV", "accounting", "|Δε|", 0.02, math.nan, False, skipped="opacus not installed"
        )
    else:
        apart = max(abs(second(*row, DELTA) - e) for row, e in zip(HISTORIES, pld, strict=True))
        agreement = Finding("PLD v PRV", "accounting", "|Δε|", 0.02, apart, apart > 0.02)
    over = max(e - epsilon_rdp([Spend(*row)], DELTA) for row, e in zip(HISTORIES, pld, strict=True))
    falls = _not_monotone()
    return [
        agreement,
        Finding("RDP ≥ PLD", "accounting", "PLD - RDP", 0.0, over, over > 0),
        Finding("T_max monotone", "accounting", "falls", 0, falls, falls > 0),
    ]


def _pld(rate: float, z: float, count: int, delta: float) -> float:
    return epsilon_pld([Spend(rate, z, count)], delta)


def _not_monotone() -> int:
    """Return how often more budget or noise certifies fewer pushes, or an earlier release more."""
    by_budget = [certified_pushes(e, DELTA, 0.05, 2.0) for e in (0.5, 1.0, 2.0)]
    by_noise = [certified_pushes(1.0, DELTA, 0.05, z) for z in (1.5, 2.0, 3.0)]
    by_past = [certified_pushes(1.0, DELTA, 0.05, 2.0, (Spend(0.05, 2.0, n),)) for n in (40, 20, 0)]
    return sum(a > b for counts in (by_budget, by_noise, by_past) for a, b in pairwise(counts))
