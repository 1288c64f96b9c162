"""What edges state: chains, ε recomputed from the counts, one definition, consents."""

from __future__ import annotations

import hashlib
import math

from tacit.errors import ConfigError, DataError, WireError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import StatedChain
from tacit_services.evidence import bundle
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.identity_checks import OpenedBundle
from tacit_services.offers.offer import Offer
from tacit_services.statements.statement import Statement

TOLERANCE = 0.005  # of ε, between versions of the accountant


def ledgers(opened: OpenedBundle, verdict: BundleVerdict) -> dict[str, StatedChain]:
    """Check each edge's statement; returns the chains that are whole, by edge."""
    chains: dict[str, StatedChain] = {}
    offer = _offer(opened, verdict)
    for edge, signed in opened.statements.items():
        statement = signed.statement
        _check_definition(edge, statement, opened, verdict)
        chain = _chain(edge, statement, verdict)
        if chain is not None:
            chains[edge] = chain
            _check_epsilon(edge, statement, chain, verdict)
        _check_consent(edge, statement, offer, verdict)
        _tell(edge, statement, verdict)
    return chains


def _check_definition(
    edge: str, statement: Statement, opened: OpenedBundle, verdict: BundleVerdict
) -> None:
    try:
        agreed = opened.files.digest(bundle.AGREED)
    except DataError as error:
        verdict.refuse("definition", str(error))
        return
    if statement.definition != agreed:
        verdict.refuse("definition", f"{edge}: has agreed on another run definition")


def _offer(opened: OpenedBundle, verdict: BundleVerdict) -> str | None:
    """Return the fingerprint of the offer in the bundle; None: there is none, or it is refused."""
    if bundle.OFFER not in opened.files.names:
        return None
    try:
        return Offer.parse(opened.files.content(bundle.OFFER)).fingerprint
    except (DataError, WireError, ConfigError) as error:
        verdict.refuse("offer", f"{bundle.OFFER}: {error}")
        return None


def _check_consent(
    edge: str, statement: Statement, offer: str | None, verdict: BundleVerdict
) -> None:
    """Refuse a bundle with an offer that an edge at work in it has never accepted."""
    if offer is None or not statement.messages.count:
        return
    accepted = [each for each in statement.consents if each.answer == "accepted"]
    if offer not in {each.offer for each in accepted}:
        verdict.refuse(
            "consent", f"{edge}: its owner has not accepted this offer, and it took part"
        )
    else:
        verdict.prove("consent", f"{edge}: states that its owner has accepted this very offer")


def _chain(edge: str, statement: Statement, verdict: BundleVerdict) -> StatedChain | None:
    try:
        chain = statement.ledger()
        chain.verify()
        chain.history()
    except (ValueError, OverflowError) as error:
        verdict.refuse("chain", f"{edge}: {error}")
        return None
    verdict.prove("chain", f"{edge}: the chain of its ledger is whole, {chain.count} charges")
    return chain


def _check_epsilon(
    edge: str, statement: Statement, chain: StatedChain, verdict: BundleVerdict
) -> None:
    stated = statement.privacy
    if stated.epsilon is None:
        verdict.state("epsilon", f"{edge}: no bound on ε; {stated.guarantee}", edge)
        return
    computed = epsilon_pld(chain.history(), stated.delta)
    if not agree(stated.epsilon, computed):
        verdict.refuse(
            "epsilon",
            f"{edge}: states ε = {stated.epsilon:.6g}, its charges come to {computed:.6g} at δ = "
            f"{stated.delta:g}",
        )
        return
    verdict.prove(
        "epsilon", f"{edge}: ε = {computed:.4g} at δ = {stated.delta:g} follows from its charges"
    )


def agree(stated: float, computed: float) -> bool:
    """Check whether two values of ε are one, as far as accountants agree."""
    return math.isclose(stated, computed, rel_tol=TOLERANCE, abs_tol=1e-6)


def _tell(edge: str, statement: Statement, verdict: BundleVerdict) -> None:
    verdict.state(
        "releases",
        f"{edge}: its ledger has every release of its data, and its noise was drawn as charged",
        edge,
    )
    for consent in statement.consents:
        if consent.withdrawn is not None:
            verdict.state(
                "withdrawal",
                f"{edge}: consent to the offer {consent.offer[:16]} was taken back on "
                f"{consent.withdrawn}",
                edge,
            )
        else:
            words = f"{edge}: offer {consent.offer[:16]} was {consent.answer} on {consent.at}"
            verdict.state("consent", words, edge)


def fingerprint(stated: bytes) -> str:
    """Return the run's fingerprint, by the text of its definition."""
    return hashlib.sha256(b"tacit-run-1" + stated).hexdigest()
