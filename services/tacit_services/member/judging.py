"""A policy's word on an offer: a pure function of what the member has looked at.

The host reads the kind of a refusal and no more. What depends on rows is of kind unavailable.
"""

from __future__ import annotations

import math

from tacit.errors import PolicyForbids
from tacit.privacy.policy import ANYBODY, OfferTerms, Policy
from tacit.shown import printable
from tacit_services.member.consent import KeyStanding
from tacit_services.member.looking import Looked
from tacit_services.member.verdict import OfferVerdict, PolicyWord, RefusalKind

_MOST = 500  # characters of a reason
_KINDS = {"code": RefusalKind.CODE, "columns": RefusalKind.COLUMNS}


def judged(looked: Looked, policy: Policy) -> OfferVerdict:
    """Return whether a member takes part, refuses, or asks its owner.

    An offer is accepted without asking only where the policy says `accept = "within"`, and every
    bound of it holds. A policy only forbids, and its owner too is refused what it does not allow.
    A name with another key than the one that was confirmed is refused.
    """
    if looked.standing is KeyStanding.OTHER_KEY:
        return _refused(
            RefusalKind.POLICY,
            f"the name {looked.offer.researcher.name!r} comes with another key than before; if it "
            "is the same person, confirm it",
            unconfirmed=True,
        )
    definition = looked.definition
    if definition is not None:
        plan = definition.plans.plan(looked.site.number)
        terms = OfferTerms(
            plan,
            definition.algorithm.name,
            definition.model.name,
            looked.offer.researcher.name,
            tuple(looked.offer.code.values()),
            () if looked.columns is None else looked.columns.read,
            definition.question_kinds,
            definition.looks_plan,
        )
        try:
            policy.check_offer(terms)
        except PolicyForbids as error:
            return _refused(_KINDS.get(error.key, RefusalKind.POLICY), str(error))
        if policy.lifetime_epsilon is not None and not plan.private:
            return _refused(
                RefusalKind.POLICY,
                f"policy lifetime_epsilon={policy.lifetime_epsilon}: the run promises no privacy "
                "at the edge, so it has no bound",
            )
    if looked.trouble is not None:
        return _refused(looked.trouble.kind, looked.trouble.words)
    return _spent(looked, policy) or _asked(looked, policy)


def _spent(looked: Looked, policy: Policy) -> OfferVerdict | None:
    """Return the refusal of a run that can pay for nothing any more; None: it can."""
    cost = looked.cost
    if cost is None or not cost.unpaid:
        return None
    if cost.lifetime is None:
        return _refused(RefusalKind.POLICY, f"ε {cost.budget:g} of the run pays for no update")
    answers = looked.definition is not None and looked.definition.ask is not None
    left = math.floor(100 * (1 - cost.lifetime.before))
    what = "answer" if answers else "look" if cost.releases else "update"
    return _refused(
        RefusalKind.POLICY,
        f"policy lifetime_epsilon={policy.lifetime_epsilon}: {left} % of it is left, which pays "
        f"for no {what} of this run, with ε {cost.budget:g}",
    )


def _asked(looked: Looked, policy: Policy) -> OfferVerdict:
    if policy.accept == "ask" or looked.cost is None:  # whose rows have not been looked at
        return OfferVerdict(PolicyWord.ASK)
    if looked.standing is not KeyStanding.KNOWN and ANYBODY not in policy.researchers:
        return _refused(
            RefusalKind.POLICY,
            f"the key of {looked.offer.researcher.name!r} has not been confirmed here: a name "
            "alone proves nothing; confirm it",
            unconfirmed=True,
        )
    return OfferVerdict(PolicyWord.ACCEPT)


def _refused(kind: RefusalKind, reason: str, *, unconfirmed: bool = False) -> OfferVerdict:
    # It repeats words of the offer, and is for a terminal and a log.
    return OfferVerdict(PolicyWord.REFUSE, kind, printable(reason, _MOST), unconfirmed)
