"""Whether model, card, definition and results of a bundle are of one run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from tacit.attacks.attack_report import AttackReport
from tacit.config.fingerprint import without
from tacit.config.run_file import THE_AGGREGATORS
from tacit.digests import canonical
from tacit.errors import DataError
from tacit.exported.model_card import OF_PRIVACY, privacy_words
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import StatedChain
from tacit.privacy.report import composed
from tacit_services.evidence import attack_checks, bundle, printed_page
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.identity_checks import OpenedBundle
from tacit_services.evidence.journal_checks import Folded
from tacit_services.evidence.statement_checks import TOLERANCE, fingerprint

SUMMARY = f"{bundle.RESULTS}/summary.json"
FACTS = f"{bundle.MODEL}/model.json"
CARD = f"{bundle.MODEL}/README.md"
WEIGHTS = f"{bundle.MODEL}/model.safetensors"
TRAINED = f"{bundle.RESULTS}/model.safetensors"


class ResultChecks:
    """The checks of one bundle's results."""

    def __init__(self, opened: OpenedBundle, verdict: BundleVerdict) -> None:
        self._opened = opened
        self._verdict = verdict
        self._files = opened.files

    def check(
        self, chains: dict[str, StatedChain], reached: dict[str, int], folded: Folded | None
    ) -> None:
        """Check that all agree with one another, with the statements and with the fold.

        reached: of edges with accepted updates, how far their ledgers had come at the last.
        """
        try:
            summary = self._json(SUMMARY)
            self._check_definition(summary)
            self._check_model(summary)
            self._check_privacy(summary["privacy"], chains, reached)
            self._check_fold(summary, folded)
            self._check_page(summary)
        except (DataError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = error if isinstance(error, DataError) else f"{error!r}"
            self._verdict.refuse("results", f"the results cannot be read: {reason}")
            return
        self._verdict.state(
            "metrics", "how well the model does on the public test set", "the host alone"
        )

    def is_told_apart(self) -> bool:
        """Whether each update of this run's algorithm is paid for by itself."""
        try:
            name = self._json(bundle.STATED).get("algorithm", {}).get("name")
        except (DataError, ValueError, AttributeError):
            return False
        return name not in ("vafl", "adp2sgd", "a2dp2sgd", "gossip")

    def _json(self, name: str) -> dict[str, Any]:
        content = json.loads(self._files.content(name))
        if not isinstance(content, dict):
            raise DataError(f"{name}: is no object")
        return content

    def _check_definition(self, summary: dict[str, Any]) -> None:
        facts = self._opened.facts
        stated_text = self._files.content(bundle.STATED)
        stated = json.loads(stated_text)
        agreed = canonical(without(stated, THE_AGGREGATORS)).encode()
        names = {facts.definition, summary["run_file_sha256"], fingerprint(stated_text)}
        if len(names) != 1 or canonical(stated).encode() != stated_text:
            words = "bundle, results and definition name different run definitions"
            self._verdict.refuse("definition", words)
        elif agreed != self._files.content(bundle.AGREED):
            words = f"{bundle.AGREED}: is not the edges' part of the run definition"
            self._verdict.refuse("definition", words)
        else:
            words = f"one run definition, {facts.definition[:16]}, is named by all"
            self._verdict.prove("definition", words)

    def _check_model(self, summary: dict[str, Any]) -> None:
        facts, which = self._opened.facts, self._opened.facts.which
        chosen = summary if which == "last" else summary["models"][which]
        model = self._json(FACTS)
        same_hash = {chosen["model_sha256"], model["trained_sha256"], facts.model_sha256}
        weights = self._files.digest(WEIGHTS)
        card = self._files.content(CARD).decode()
        wrong = [
            (len(same_hash) != 1, "bundle, results and model name different weights"),
            (self._files.digest(TRAINED) != facts.model_sha256, f"{TRAINED}: are other weights"),
            (model["weights_sha256"] != weights, f"{WEIGHTS}: are other weights"),
            (not self._same_numbers(), f"{WEIGHTS}: has other numbers than {TRAINED}"),
            (weights not in card or facts.model_sha256 not in card, f"{CARD}: is another's"),
            (model["metrics"] != chosen["metrics"], f"{FACTS}: has other results"),
            (
                model["privacy"] != {key: summary["privacy"][key] for key in OF_PRIVACY},
                f"{FACTS}: has another privacy",
            ),
            (
                not set(privacy_words(summary["privacy"]).splitlines()) <= set(card.splitlines()),
                f"{CARD}: has another privacy",
            ),
        ]
        faults = [words for fault, words in wrong if fault]
        for words in faults:
            self._verdict.refuse("model", words)
        if not faults:
            words = f"model, card and results are of the weights {facts.model_sha256[:16]}"
            self._verdict.prove("model", words)

    def _same_numbers(self) -> bool:
        """Check that both files of weights have the same numbers, by other names or the same."""
        import safetensors.torch

        try:
            with self._files.opened(WEIGHTS) as file:
                exported = safetensors.torch.load(file.read())
            with self._files.opened(TRAINED) as file:
                trained = safetensors.torch.load(file.read())
        except safetensors.SafetensorError as error:
            raise DataError(f"weights: {error}") from error
        hashes = [
            {hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in each.values()}
            for each in (trained, exported)
        ]
        return hashes[0] <= hashes[1]

    def _check_privacy(
        self, privacy: dict[str, Any], chains: dict[str, StatedChain], reached: dict[str, int]
    ) -> None:
        delta = privacy["delta"]
        histories = []
        heard = reached if self._opened.facts.journal else self._speakers()
        absent = sorted(set(heard) - set(privacy["edges"]))
        faults = [f"{edge}: the results leave out its releases" for edge in absent]
        for edge, entry in privacy["edges"].items():
            if (chain := chains.get(edge)) is None:
                if entry["pushes"]:
                    faults.append(f"{edge}: the results have its releases, and it states nothing")
                continue
            least = reached.get(edge, 0)
            faults += [f"{edge}: {words}" for words in _faults(entry, chain, least, delta)]
            histories.append(chain.history(entry["charged"]["count"]))
            if self._opened.statements[edge].statement.privacy.delta != delta:
                faults.append(f"{edge}: states another δ than the results")
        if histories and privacy["guarantee"] != "none":
            faults += self._faults_together(privacy, histories)
        for words in faults:
            self._verdict.refuse("privacy", words)
        if not faults and privacy["epsilon"] is not None:
            words = f"ε = {privacy['epsilon']:.4g} of the results is no less than what edges state"
            self._verdict.prove("privacy", words)

    def _speakers(self) -> set[str]:
        """Return the edges that state that the run has accepted messages of theirs."""
        stated = self._opened.statements.items()
        return {edge for edge, signed in stated if signed.statement.messages.count}

    def _faults_together(self, privacy: dict[str, Any], histories: list[Any]) -> list[str]:
        stated = self._json(bundle.STATED)
        people = stated.get("data", {}).get("people")
        if "mu" in privacy:
            computed = composed("sum", histories, privacy["delta"])
        else:
            kind = "together" if people == "shared" else "max"
            computed = composed(kind, histories, privacy["delta"])  # type: ignore[arg-type]
        if _below(privacy["epsilon"], computed):
            return [f"the results have a smaller ε than {computed:.6g}, which edges' charges make"]
        return []

    def _check_page(self, summary: dict[str, Any]) -> None:
        facts = self._opened.facts
        if bundle.PAGE not in self._files.names:
            self._verdict.miss("page", "the printed page")
            return
        statements = {edge: each.statement for edge, each in self._opened.statements.items()}
        stated = self._json(bundle.STATED)
        sheet = printed_page.page(
            facts.run, facts.model_sha256, stated, summary, statements, facts.names, self._report()
        )
        if sheet.encode() != self._files.content(bundle.PAGE):
            self._verdict.refuse("page", f"{bundle.PAGE}: says something else than the bundle")
        else:
            self._verdict.prove("page", "the printed page says what the bundle has")

    def _report(self) -> AttackReport | None:
        """Return the attack report; None where there is none. Raises DataError."""
        if bundle.in_attack(bundle.REPORT) not in self._files.names:
            return None
        return attack_checks.report_of(self._opened)

    def _check_fold(self, summary: dict[str, Any], folded: Folded | None) -> None:
        if folded is None:
            return
        if folded.model_sha256 != summary["model_sha256"]:
            words = f"the journal folds to another model, {folded.model_sha256[:16]}"
            self._verdict.refuse("fold", words)
        elif folded.version != summary["model_version"]:
            self._verdict.refuse("fold", f"the journal folds to version {folded.version}")
        else:
            self._verdict.prove("fold", "the journal folds to the weights, bit for bit")


def _faults(entry: dict[str, Any], chain: StatedChain, least: int, delta: float) -> Iterator[str]:
    """Yield what is wrong with the results of an edge; least: charges that they must have."""
    charged = entry["charged"]
    count = charged["count"]
    head = chain.heads({count}).get(count)
    if count < least:
        yield "the results end before its last accepted update"
    if head is None or (count and head.hex() != charged["head"]):
        yield "the results have another ledger than it states"
    elif _below(entry["epsilon_pld"], epsilon_pld(chain.history(count), delta)):
        yield "the results have a smaller ε than its charges come to"


def _below(stated: float | None, computed: float) -> bool:
    """Check whether a stated ε is too small; None: no bound."""
    if stated is None:
        return False
    return not math.isfinite(computed) or stated < computed * (1 - TOLERANCE) - 1e-6
