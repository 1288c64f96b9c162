"""What an offer costs, in words: rows of the owner's screen, at the terminal and on the page."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator

from tacit import rounding
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.run_cost import LifetimeShare, RunCost
from tacit_services.member.screen_text import ScreenRow

_FIXED = (
    "A figure of ε for several runs counts on runs whose noise was not chosen after earlier "
    "results were seen. A bound for life holds however it was chosen."
)
ADDING_UP = (
    "These parts do not add up as ε does: runs together cost less than the sum of their ε, and a "
    "bound is counted in a way that holds for all later runs, too."
)


def short_words(cost: RunCost) -> str:
    """Return the figure in a few words, for a question and a list."""
    guess = rounding.guess(cost.epsilon)
    surely = "almost certain" if guess is None else guess
    return (
        f"ε {rounding.epsilon(cost.epsilon)}: at most {rounding.odds(cost.epsilon)} times as "
        f"likely; a guess that was 50:50 could become {surely}"
    )


def cost_rows(cost: RunCost, terms: CostTerms) -> Iterator[ScreenRow]:
    """Yield what a run may cost, and what of its data's budget is left."""
    if not cost.private:
        yield "privacy", f"NONE: mechanism {terms.mechanism} promises nothing"
        return
    yield "this run", short_words(cost)
    yield (
        "that is",
        f"Somebody sees all that has left, and the model, and asks whether {terms.unit} took part. "
        "No answer becomes more than that many times as likely because of it, but for a chance "
        "of δ.",
    )
    yield "δ", f"{rounding.decimal(cost.delta)}, for {terms.unit}"
    yield (
        "it ends",
        f"at ε {cost.budget:g}, or after {cost.releases:,} releases (what leaves with noise)",
    )
    yield "spent", f"ε {rounding.epsilon(cost.before)} by this data up to now"
    for run, epsilon in cost.promised:
        yield (
            "promised",
            f"another ε {rounding.epsilon(epsilon)} to {run}, which is accepted, if it goes on to "
            "its end",
        )
    yield "in all", _in_all(cost)
    yield from _life(cost.lifetime)
    yield "", _FIXED


def costs_digest(cost: RunCost | None, *others: str) -> str:
    """Return a SHA-256 of what an owner consents to: equal figures have an equal one.

    What an accepted run spends of its promise changes nothing. others: what is to count, too.
    """
    return hashlib.sha256(json.dumps([_counted(cost), *others]).encode()).hexdigest()


def _counted(cost: RunCost | None) -> list[object]:
    if cost is None or not cost.private:
        return [cost is not None]
    share = cost.lifetime
    counted = [cost.budget, cost.delta, rounding.epsilon(cost.committed)]
    promised = sorted(run for run, _ in cost.promised)
    if share is not None:
        bound = [share.epsilon, share.delta, _percent(share.committed), _percent(share.requested)]
        counted += bound
    if share is None or not share.stops:  # else others that go on leave this run less and less
        counted += [cost.releases, rounding.epsilon(cost.epsilon), rounding.epsilon(cost.after)]
    return [*counted, promised]


def _in_all(cost: RunCost) -> str:
    """Return the joint ε after a run, as far as the owner's bound lets it come."""
    after = rounding.epsilon(cost.after)
    also = ", with what is promised" if cost.promised else ""
    share = cost.lifetime
    if share is None or not share.stops:
        return f"at most ε {after} after this run{also}"
    if cost.after > share.epsilon:
        return (
            f"at most ε {share.epsilon:g}: your bound stops it there. Without it these runs could "
            f"come to ε {after}, or more"
        )
    return (
        f"at most ε {after} after this run{also}; your bound of ε {share.epsilon:g} may end a run "
        "before"
    )


def _life(share: LifetimeShare | None) -> Iterator[ScreenRow]:
    if share is None:
        yield "lifetime", "you have set no bound on what this data may spend in all"
        return
    yield (
        "lifetime",
        f"Your bound is ε {share.epsilon:g} at δ {rounding.decimal(share.delta)}, over all runs. "
        f"Of what it allows, {percent_words(share)}.",
    )
    yield "", ADDING_UP


def bound_parts(share: LifetimeShare) -> dict[str, int]:
    """Return the parts of a bound in hundredths: what is left is never more than it is."""
    spent, committed = _percent(share.before), _percent(share.committed)
    return {"spent": spent, "promised": max(0, committed - spent), "left": max(0, 100 - committed)}


def percent_words(share: LifetimeShare) -> str:
    """Return the parts of a bound in words."""
    parts = bound_parts(share)
    requested = _percent(share.requested - share.committed)
    free = parts["left"]
    words = f"{parts['spent']} % is spent, {parts['promised']} % is promised, and {free} % is left"
    if not share.stops:
        return f"{words}; this run takes {requested} % at most"
    if free:
        return f"{words}; this run asks for {requested} %, so the bound may end a run early"
    return f"{words}; this run asks for {requested} %, so it gets what promised runs do not use"


def _percent(part: float) -> int:
    """Return a part that is spent in hundredths, never less than it is."""
    return math.ceil(100 * part - 1e-9)
