"""The audit's tests A, B and C: one push, or many of the same kind, seen as bytes. privacy.md says what each is for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tacit import wire
from tacit.audit.statistics import SHARE, Finding, Values, proven, related, sampler_p_value, uneven
from tacit.audit.subject import (
    CLIP,
    CLIPS,
    WIDE,
    Ask,
    Resend,
    Source,
    Subject,
    answer,
    box,
    certain,
    direction,
    make,
    received,
    records,
    vector,
    vectors,
)  # fmt: skip
from tacit.datasets import Dataset
from tacit.errors import TacitError
from tacit.messages import GlobalModel, Terms
from tacit.models import build

NOISE_PUSHES, EMPTY_PUSHES, START_PUSHES, ORDER_PUSHES = 800, 300, 200, 60
SAMPLER_ROWS, SAMPLER_RATE, SAMPLER_PUSHES = 40, 0.1, 1000
_VISIBLE = {"knorm": 0.005}  # noise far below one record's share, so that the wire shows who was in the batch
Fork = Callable[[Ask, int], list[bytes]]  # what a forked child sends


# -- A: one record, in or out ---------------------------------------------------------------------------------------


def canary(subject: Subject, source: Source, pushes: int) -> list[Finding]:
    """A: bounds on what one push says about one record, in either direction; above the claim is an alarm."""
    scores = [_score(subject, vectors(box(subject, source, canary=there), pushes)) for there in (True, False)]
    findings = []
    for name, left, right in (("D/D'", scores[0], scores[1]), ("D'/D", -scores[1], -scores[0])):
        mu, epsilon = proven(left, right, subject.delta)
        measured = [("μ", subject.mu, mu), ("ε", subject.epsilon, epsilon)]
        findings += [
            Finding(f"canary {name}", subject.name, unit, claim, value, value > claim, subject.honest)
            for unit, claim, value in measured
            if claim is not None
        ]
    return findings


def _score(subject: Subject, pushes: Tensor) -> Values:
    """How much a push looks as if the canary were in: along its gradient, or by distance where noise is radial."""
    values: Values
    if subject.mechanism in ("knorm", "paper", "paper:mean_clip", "paper:density"):
        whole = subject.mechanism in ("paper", "paper:mean_clip")  # a mean that is clipped is all canary
        shift = direction(subject.model) * CLIP / (1 if whole else subject.batch)
        values = (pushes.norm(dim=1) - (pushes - shift).norm(dim=1)).numpy()
    else:
        values = (pushes @ direction(subject.model)).numpy()
    return values


# -- B: structure ---------------------------------------------------------------------------------------------------


def noise(subject: Subject, source: Source, pushes: int = NOISE_PUSHES) -> list[Finding]:
    """B: every coordinate of the message has the claimed noise, whatever the size of the batch."""
    subject = subject.but(model=WIDE, rate=0.5)
    drawn = vectors(box(subject, source, canary=False), pushes)
    worst, wrong = uneven(drawn, subject.std, subject.kurtosis)
    return [Finding("noise, each coordinate", subject.name, "std/claim", 1.0, worst, bool(wrong), subject.honest)]


def anew(subject: Subject, source: Source) -> list[Finding]:
    """B: two pushes for the same model do not share noise."""
    subject = subject.but(model=WIDE, rate=0.5)
    drawn = vectors(box(subject, source, canary=False), START_PUSHES)
    return [_unrelated("noise, each push anew", subject, drawn[:-1], drawn[1:])]


def empty_batch(subject: Subject, source: Source) -> list[Finding]:
    """B: a batch without any record is a message of the same size, with the same noise."""
    drawn = subject.but(model=WIDE, rate=1e-9)
    payloads = [box(drawn, source, canary=True)() for _ in range(2)]
    full = box(subject.but(model=WIDE), source, canary=True)()
    worst, wrong = uneven(vectors(box(drawn, source, canary=True), EMPTY_PUSHES), drawn.std, drawn.kurtosis)
    shorter = any(abs(len(payload) - len(full)) > 16 for payload in payloads)  # numbers of another rate, not 600 bytes
    return [Finding("empty batch", subject.name, "std/claim", 1.0, worst, bool(wrong) or shorter, subject.honest)]


def starts(subject: Subject, source: Source) -> list[Finding]:
    """B: the same edge started twice does not draw the same noise."""
    subject = subject.but(model=WIDE)
    first, second = (vectors(box(subject, source, canary=False), START_PUSHES) for _ in range(2))
    return [_unrelated("noise of two starts", subject, first, second)]


def forks(subjects: list[Subject], source: Source, fork: Fork) -> list[Finding]:
    """B: nor does a forked child. All children are made before this process computes its first gradient."""
    asks = [box(subject.but(model=WIDE), source, canary=False) for subject in subjects]
    children = [torch.stack([vector(sent) for sent in fork(ask, START_PUSHES)]) for ask in asks]
    return [
        _unrelated("noise of a forked child", subject.but(model=WIDE), vectors(ask, START_PUSHES), child)
        for subject, ask, child in zip(subjects, asks, children, strict=True)
    ]


def _unrelated(test: str, subject: Subject, first: Tensor, second: Tensor) -> Finding:
    largest, limit = related(first, second)
    return Finding(test, subject.name, "|correlation|", limit, largest, largest > limit, subject.honest)


def fields(subject: Subject, source: Source) -> list[Finding]:
    """B: all of a message but the tensor, its digest and the chain's head is the same with the canary and without."""
    differing = 0
    for rate in (1.0, 0.3, 1e-9):
        asks = [box(subject.but(rate=rate), source, canary=there) for there in (True, False)]
        differing += sum(_public(asks[0]()) != _public(asks[1]()) for _ in range(15))
    return [Finding("fields with and without", subject.name, "differing", 0, differing, differing > 0, subject.honest)]


def _public(payload: bytes) -> tuple[int, bytes]:
    meta = wire.decode(payload).meta
    meta.ClearField("sha256")
    meta.update.charged.ClearField("head")
    return len(payload), meta.SerializeToString(deterministic=True)


def retry(subject: Subject, source: Source, resend: Resend) -> list[Finding]:
    """B: what is sent again after a restart is what was sent, byte for byte."""
    first, second = (subject.resend or resend)(box(subject, source, canary=True))
    differing = abs(len(first) - len(second)) + sum(a != b for a, b in zip(first, second, strict=False))
    return [Finding("retry", subject.name, "bytes differing", 0, differing, differing > 0, subject.honest)]


def orders(subject: Subject, source: Source) -> list[Finding]:
    """B: whatever terms or clip a server sends, no push leaves with less than the claimed noise, or another clip."""
    subject = subject.but(model=WIDE)
    params = certain(WIDE)
    hostile = [GlobalModel(3, params, clip) for clip in (0.0, float("nan"), CLIPS[0] / 2, 2 * CLIPS[1])]
    for terms in (Terms("none", 1.0, 0.0), Terms(subject.mechanism, 1.0, 1e-6), Terms(subject.mechanism, 1e-9)):
        hostile.append(GlobalModel(3, params, CLIP, terms))
    obeyed = sum(_obeyed(subject, source, message) for message in hostile)
    return [Finding("orders from a server", subject.name, "obeyed", 0, obeyed, obeyed > 0, subject.honest)]


def _obeyed(subject: Subject, source: Source, message: GlobalModel) -> bool:
    edge = make(subject, records(WIDE, canary=False), source)
    try:
        order = received(message, WIDE)
        sent = [payload for _ in range(ORDER_PUSHES) if (payload := answer(edge, order)) is not None]
    except TacitError:
        return False
    if not sent:
        return False
    noise = torch.stack([vector(payload) for payload in sent])
    return message.clip != CLIP or float(noise.square().mean()) < (0.9 * subject.std) ** 2  # 9,000 numbers: 12σ or more


# -- C: the sampler, through the wire -------------------------------------------------------------------------------


def sampler(subject: Subject, source: Source, pushes: int = SAMPLER_PUSHES) -> list[Finding]:
    """C: who was in each batch, read off the wire with hardly any noise, is a Poisson sample."""
    model = build("logistic", (1, 1, SAMPLER_ROWS), 2)
    subject = subject.but(model=model, z=_VISIBLE.get(subject.mechanism, 0.02), rate=SAMPLER_RATE)
    edge = make(subject, pixels(SAMPLER_ROWS), source)
    message = received(GlobalModel(1, torch.zeros(model.size), CLIP), model)
    table = np.zeros((pushes, SAMPLER_ROWS), np.int64)
    for batch in table:
        sent = answer(edge, message)
        assert sent is not None
        batch[:] = alone(vector(sent), SAMPLER_ROWS) * subject.batch / CLIP > 0.5
    p = sampler_p_value(table, SAMPLER_RATE)
    return [Finding("sampler", subject.name, "p-value", SHARE, p, p < SHARE, subject.honest)]


def pixels(rows: int) -> Dataset:
    """One row per pixel: each has a gradient of its own, nearly orthogonal to every other's."""
    return Dataset(50.0 * torch.eye(rows).view(rows, 1, 1, rows), torch.arange(rows) % 2, 2, "audit")


def alone(push: Tensor, rows: int) -> Values:
    """(rows,): each row's own direction in a push of the logistic model, C times its multiplicity over L."""
    weights = push[: 2 * rows].view(2, rows)
    sign = 1.0 - 2.0 * (torch.arange(rows) % 2)  # the gradient lowers the score of the wrong class
    values: Values = (sign * (weights[1] - weights[0]) / 2**0.5).numpy()
    return values
