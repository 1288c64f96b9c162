"""The audit's test H: a party that guesses labels from what the label holder sends back.

Where embeddings are added up, the gradient of a record's embedding is p - y: negative at the label
alone, so the party guesses that place. Labels that went through randomised response at ε_y are
guessed right no more often than e^ε_y/(e^ε_y + C - 1), as the C labels are about alike likely.
Where θ_m is frozen nothing is sent back, so there is nothing to guess from.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from torch import Tensor

from tacit import config, datasets
from tacit.algorithms import registry
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.step_rules import batch_rows
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.audit.statistics import Finding, at_least
from tacit.audit.subject import EDGE, RUN, Randomness
from tacit.config.definition import Definition
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.labels import keep_probability, randomised_response
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import EVERYONE, GlobalModel
from tacit.protocol.vertical import Feedback, Request, Roster

EPSILON = 2.0  # ε_y
_SALT = b"audit"
_UPDATES = 120
_FILE = """
run.updates = {updates}
data.dataset = "digits"
model.name = "logistic"
algorithm = {{ name = "vafl", mode = "{mode}" }}
privacy = {{ mechanism = "{mechanism}", batch = 64, clip = 1.0, pushes = 1 }}
edges.count = 2
evaluation = {{ every = {updates}, samples = 10 }}
"""
LabelGuess = dict[int, int]  # a label for each record


def overheard(mode: str, mechanism: str, labels: Tensor, epsilon: float) -> LabelGuess:
    """Return what party EDGE guesses of the `labels` (n,) that the label holder trains on.

    mode: of the parties' embeddings. epsilon: ε_y that the label holder takes the labels to have
    gone through, inf for none.
    """
    text = _FILE.format(updates=_UPDATES, mode=mode, mechanism=mechanism)
    definition = config.parse(text, "audit").define()
    splits = datasets.splits("digits", None)
    records = vafl_algorithm.labelled_records(splits, _SALT, labels, epsilon)
    model = definition.build_model()
    server = registry.server(definition, model, records)
    roles = vertical(definition)
    parties = {
        name: vafl_algorithm.party(
            roles, name, number, splits, _SALT, SimulatedLedger(), Randomness(number).random()
        )
        for number, name in enumerate(definition.worker_names)
    }
    waiting: deque[Any] = deque(out.message for party in parties.values() for out in party.start())
    schema = model.schema_hash()
    guessed: LabelGuess = {}
    sent = 0
    while waiting and not server.halted:
        sent += 1
        wired = wire_up.up(RUN, sent, waiting.popleft(), schema)
        for out in server.on_message(
            wire_up.read_up(wire.decode(bytearray(wired)), schema, model.size)
        ):
            if out.to == EDGE and isinstance(out.message, Feedback):
                guessed |= _guesses(definition, out.message, len(labels))
            for name in parties if out.to == EVERYONE else [out.to]:
                message = out.message
                if isinstance(message, GlobalModel | Roster | Feedback | Request):
                    waiting += [answer.message for answer in parties[name].on_message(message)]
    return guessed


def _guesses(definition: Definition[Any], feedback: Feedback, records: int) -> LabelGuess:
    """Return the label of each record of the batch whose gradient is sent back."""
    if feedback.gradient is None:
        return {}
    rows = batch_rows(vertical(definition).protocol, 0, feedback.step, records)
    return dict(zip(rows.tolist(), feedback.gradient.argmin(1).tolist(), strict=True))


def _found(name: str, guessed: LabelGuess, truth: Tensor, claim: float, *, honest: bool) -> Finding:
    right = sum(int(truth[row]) == label for row, label in guessed.items())
    share = float(at_least(np.array([right]), max(1, len(guessed)))[0])
    return Finding("labels, sent back", name, "share right", claim, share, share > claim, honest)


def label_tests(source: Randomness, *, mutants: bool) -> list[Finding]:
    """Guess labels of protected ones, of frozen embeddings, and of labels in clear as a mutant (H).

    In the frozen mode the claim is that not one label is guessed.
    """
    train, _ = datasets.splits("digits", None)
    truth = train.y
    noisy = randomised_response(truth, train.classes, EPSILON, source.random())
    claim = keep_probability(EPSILON, train.classes)
    answered = overheard("trained", "none", noisy, EPSILON)
    frozen = overheard("cached", "gaussian", truth, float("inf"))
    findings = [
        _found("randomised response", answered, truth, claim, honest=True),
        Finding("labels, sent back", "cached", "guesses", 0, len(frozen), bool(frozen)),
    ]
    if mutants:
        clear = overheard("trained", "none", truth, float("inf"))
        findings.append(_found("MUTANT labels in clear", clear, truth, claim, honest=False))
    return findings
