"""The audit's tests A and B: one message, or many of the same kind, seen as bytes.

docs/privacy.md, "The audit", says what each test is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.audit.adapters import make
from tacit.audit.statistics import Finding, ScoreValues, proven, related, tails, uneven
from tacit.audit.subject import CLIP, CLIPS, ROWS, WIDE, Ask, Randomness, Resend, Subject
from tacit.audit.worlds import (
    MessageSource,
    World,
    opposed_world,
    quiet_source,
    quiet_world,
    received,
)
from tacit.errors import TacitError
from tacit.privacy import ledger
from tacit.privacy.accounting.history import UnitSide
from tacit.privacy.policy import Terms
from tacit.privacy.private_sum import counted
from tacit.protocol import wire
from tacit.protocol.messages import GlobalModel

NOISE_PUSHES = 1200
EMPTY_PUSHES = 300
START_PUSHES = 200
ORDER_PUSHES = 60
STRANGE = (math.nan, math.inf, 3e38, 1e20, 1e-42)  # features that no honest record has
STRANGE_PUSHES = 25
CHARGED_PUSHES = 12
Fork = Callable[[Ask, int], list[bytes]]  # what a forked child sends


# -- A: one record, in or out ----------------------------------------------------------------------


def canary(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Bound what one message shows of one record, in either direction (A).

    A bound above the claim is an alarm.
    """
    return in_or_out("canary", subject, source, quiet_world(subject.model), pushes)


def against(
    subject: Subject, source: Randomness, pushes: int, test: str = "canary against all"
) -> list[Finding]:
    """Bound the same for a record that all others pull against, through all layers at once (A)."""
    subject = subject.but(learning_rate=1.0, most=ROWS)  # no slot is empty when the canary is there
    return in_or_out(test, subject, source, opposed_world(), pushes)


def in_or_out(
    test: str, subject: Subject, source: Randomness, world: World, pushes: int
) -> list[Finding]:
    """Bound what one message shows of the world's canary, in either direction (A)."""
    scores = [
        score(
            subject, world, MessageSource(subject, source, world, canary=included).vectors(pushes)
        )
        for included in (True, False)
    ]
    return compared(test, subject, scores[0], scores[1])


def compared(
    test: str, subject: Subject, inside: ScoreValues, outside: ScoreValues, *, factor: float = 1.0
) -> list[Finding]:
    """Return the findings of two samples of scores, in both directions.

    factor: how many records differ (group privacy, for μ only).
    """
    findings = []
    for name, sample, reference in (("D/D'", inside, outside), ("D'/D", -outside, -inside)):
        mu, epsilon = proven(sample, reference, subject.delta)
        if subject.mu is None:
            measured = []
        else:
            measured = [("μ", factor * subject.mu, mu)]
        measured += [("ε", subject.epsilon, epsilon)] if factor == 1.0 else []
        findings += [
            Finding(
                f"{test} {name}", subject.name, unit, claim, value, value > claim, subject.honest
            )
            for unit, claim, value in measured
        ]
    return findings


def score(subject: Subject, world: World, pushes: Tensor) -> ScoreValues:
    """Return how much a push looks as if the canary were in.

    It is the push along the canary's gradient, or its distance where noise is radial.
    """
    values: ScoreValues
    if subject.mechanism in ("knorm", "paper", "paper:mean_clip", "paper:density"):
        # Where a mean is clipped, the canary is all of it.
        mean_clipped = subject.mechanism in ("paper", "paper:mean_clip")
        shift = world.direction * CLIP / (1 if mean_clipped else subject.batch)
        values = (pushes.norm(dim=1) - (pushes - shift).norm(dim=1)).numpy()
    else:
        direction = world.direction
        if pushes.shape[1] > len(direction):  # the canary is not among those within C
            gradient = direction * math.sqrt(1 - counted.SHARE**2)
            direction = torch.cat([gradient, gradient.new_tensor([-counted.SHARE])])
        values = (pushes @ direction).numpy()
    return values


# -- B: structure ----------------------------------------------------------------------------------


def noise(subject: Subject, source: Randomness, pushes: int = NOISE_PUSHES) -> list[Finding]:
    """Check that every coordinate has the claimed noise, to its tails (B).

    No two messages share it.
    """
    subject = subject.but(model=WIDE, rate=min(subject.rate, 0.5))
    drawn = quiet_source(subject, source, canary=False).vectors(pushes)
    worst, wrong = uneven(drawn, subject.std, subject.kurtosis)
    findings = [
        Finding(
            "noise, each coordinate",
            subject.name,
            "std/claim",
            1.0,
            worst,
            bool(wrong),
            subject.honest,
        )
    ]
    same = pushes - len(torch.unique(drawn, dim=0))
    findings.append(
        Finding("noise, any two alike", subject.name, "pairs", 0, same, same > 0, subject.honest)
    )
    if subject.mechanism != "knorm":
        p, limit = tails(drawn / subject.std)
        findings.append(
            Finding(
                "noise, its tails", subject.name, "p-value", limit, p, p < limit, subject.honest
            )
        )
    return findings


def anew(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that two pushes for the same model do not share noise (B)."""
    subject = subject.but(model=WIDE, rate=0.5)
    drawn = quiet_source(subject, source, canary=False).vectors(START_PUSHES)
    return [_unrelated("noise, each push anew", subject, drawn[:-1], drawn[1:])]


def empty_batch(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that an empty batch makes a message of the same size, with the same noise (B)."""
    drawn = subject.but(model=WIDE, rate=1e-9)
    ask = quiet_source(drawn, source, canary=True)
    payloads = [ask() for _ in range(2)]
    full = quiet_source(subject.but(model=WIDE), source, canary=True)()
    worst, wrong = uneven(ask.vectors(EMPTY_PUSHES), drawn.std, drawn.kurtosis)
    shorter = any(_numbers(payload) != _numbers(full) for payload in payloads)
    return [
        Finding(
            "empty batch",
            subject.name,
            "std/claim",
            1.0,
            worst,
            bool(wrong) or shorter,
            subject.honest,
        )
    ]


def starts(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that the same edge started twice does not draw the same noise (B)."""
    subject = subject.but(model=WIDE)
    first, second = (
        quiet_source(subject, source, canary=False).vectors(START_PUSHES) for _ in range(2)
    )
    return [_unrelated("noise of two starts", subject, first, second)]


def forks(subjects: list[Subject], source: Randomness, fork: Fork | None) -> list[Finding]:
    """Check that a forked child does not draw its parent's noise (B).

    All children are made before this process computes its first gradient. fork: None where no
    process forks: there is nothing to be found.
    """
    if fork is None:
        return []
    asks = [quiet_source(subject.but(model=WIDE), source, canary=False) for subject in subjects]
    children = [torch.stack([ask.read(sent) for sent in fork(ask, START_PUSHES)]) for ask in asks]
    return [
        _unrelated(
            "noise of a forked child", subject.but(model=WIDE), ask.vectors(START_PUSHES), child
        )
        for subject, ask, child in zip(subjects, asks, children, strict=True)
    ]


def _unrelated(test: str, subject: Subject, first: Tensor, second: Tensor) -> Finding:
    largest, limit = related(first, second)
    return Finding(
        test, subject.name, "|correlation|", limit, largest, largest > limit, subject.honest
    )


def fields(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that a message is the same with the canary and without, but for its sealed part (B).

    That part is the tensor, its digest and the chain's head. An edge's first messages have none of
    it, and are the same.
    """
    differing = 0
    for rate in {1.0, 0.3, 1e-9, subject.rate}:
        asks = [
            quiet_source(subject.but(rate=rate), source, canary=included)
            for included in (True, False)
        ]
        first, second = ([out.message for out in ask.adapter.edge.start()] for ask in asks)
        differing += first != second
        for _ in range(15):
            (alone, public), (alone_too, public_too) = (
                open_fields(asks[0]()),
                open_fields(asks[1]()),
            )
            differing += not (alone and alone_too) or public != public_too
    return [
        Finding(
            "fields with and without",
            subject.name,
            "differing",
            0,
            differing,
            differing > 0,
            subject.honest,
        )
    ]


def open_fields(payload: bytes) -> tuple[bool, bytes]:
    """Check that the released numbers make the tensor's bytes; return that and the other fields."""
    received = wire.decode(payload)
    meta = received.meta
    alone = wire.encode(meta, received.tensor) == payload
    for field in ("dtype", "apart", "sha256", "xxh3"):
        meta.ClearField(field)
    meta.update.charged.head = bytes(len(meta.update.charged.head))
    return alone, meta.SerializeToString(deterministic=True)


def strange(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that nan, huge or tiny features change no message's coming or size (B)."""
    wrong = 0
    subject = subject.but(rate=1.0, steps=1)
    plain = _numbers(quiet_source(subject, source, canary=True)())
    reach = 12 * subject.std * math.sqrt(subject.model.size) + 1.01 * CLIP / subject.batch
    for feature in STRANGE:
        ask = MessageSource(subject, source, quiet_world(subject.model, feature), canary=True)
        wrong += sum(not _ordinary(ask, plain, reach) for _ in range(STRANGE_PUSHES))
    return [Finding("strange rows", subject.name, "messages", 0, wrong, wrong > 0, subject.honest)]


def _numbers(payload: bytes) -> int:
    return wire.decode(payload).meta.numel


def _ordinary(ask: MessageSource, size: int, reach: float) -> bool:
    """Check whether the next message has the usual size, and the length of noise and one row."""
    try:
        payload = ask()
        return _numbers(payload) == size and float(ask.read(payload).norm()) <= reach
    except (TacitError, ValueError):
        return False


def charges(subject: Subject, source: Randomness, path: Path) -> list[Finding]:
    """Check that a copy of the ledger's file holds all sent releases at their price (B).

    The file is copied while the edge runs.
    """
    ask = MessageSource(subject, source, quiet_world(subject.model), canary=True, ledger=path)
    price = (subject.rate, subject.z, subject.mechanism)
    missing = 0
    for number in range(1, CHARGED_PUSHES + 1):
        ask()
        missing = max(missing, subject.steps * number - counted_charges(path, price))
    return [
        Finding("ledger's file", subject.name, "missing", 0, missing, missing > 0, subject.honest)
    ]


def counted_charges(
    path: Path, price: tuple[float, float, str], side: UnitSide | None = None
) -> int:
    """Return the number of charges at (q, z, mechanism) in a copy of a ledger's file.

    side: of whose rows they are; None: whosever. A `kill -9` and one copied file leave no more. It
    is 0 for a file that is no ledger.
    """
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    try:
        spent = [spend for chain in ledger.read_chains(copy) for spend in chain.history()]
    except TacitError:
        return 0
    rate, _, mechanism = price
    right = {price, (rate, 0.0, mechanism)}  # z is 0 where the noise is from a known seed
    return sum(
        s.count
        for s in spent
        if (s.sampling_rate, s.noise_multiplier, s.mechanism) in right and side in (None, s.side)
    )


def retry(subject: Subject, source: Randomness, resend: Resend) -> list[Finding]:
    """Check that a message sent again after a restart is the same, byte for byte (B)."""
    first, second = (subject.resend or resend)(quiet_source(subject, source, canary=True))
    differing = abs(len(first) - len(second)) + sum(
        a != b for a, b in zip(first, second, strict=False)
    )
    return [
        Finding(
            "retry", subject.name, "bytes differing", 0, differing, differing > 0, subject.honest
        )
    ]


def orders(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that no terms or clip of a server make a push with less noise than claimed (B).

    No push has another clip, either.
    """
    subject = subject.but(model=WIDE)
    params = quiet_world(WIDE).params
    hostile = [GlobalModel(3, params, clip) for clip in (0.0, math.nan, CLIPS[0] / 2, 2 * CLIPS[1])]
    for terms in (
        Terms("none", 1.0, 0.0),
        Terms(subject.mechanism, 1.0, 1e-6),
        Terms(subject.mechanism, 1e-9),
    ):
        hostile.append(GlobalModel(3, params, CLIP, terms))
    obeyed = sum(_obeyed(subject, source, message) for message in hostile)
    return [
        Finding(
            "orders from a server", subject.name, "obeyed", 0, obeyed, obeyed > 0, subject.honest
        )
    ]


def _obeyed(subject: Subject, source: Randomness, message: GlobalModel) -> bool:
    adapter = make(subject, quiet_world(WIDE).records(canary=False), source)
    try:
        order = received(message, WIDE)
        sent = [payload for _ in range(ORDER_PUSHES) if (payload := adapter.ask(order)) is not None]
    except TacitError:
        return False
    if not sent:
        return False
    drawn = torch.stack([adapter.read(payload, message.params) for payload in sent])
    # Of 9,000 numbers: with honest noise this is 12σ or more away.
    return message.clip != CLIP or float(drawn.square().mean()) < (0.9 * subject.std) ** 2
