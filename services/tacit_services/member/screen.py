"""The consent screen: what an owner reads before anything of the rows is used.

    screen = Screen(looked, verdict, earlier)
    print_sections(screen.sections(), console)      # fits 80 columns
    screen.document()               # the same for --json

Every word that came with the offer, or from the file, is shown as text in one line: control
characters and what turns a line around are `?`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tacit import rounding
from tacit.config.own_data import OwnData
from tacit.config.own_table import TableData
from tacit.config.own_target import names_of
from tacit.models.graph.graph_model import GraphModel
from tacit.shown import printable
from tacit_services.member.consent import Consent, KeyStanding
from tacit_services.member.looking import Looked
from tacit_services.member.run_cost import RunCost
from tacit_services.member.screen_text import ScreenRow, ScreenSections
from tacit_services.member.verdict import OfferVerdict, PolicyWord

_MOST_NAMES = 30  # columns, or layers, of which the screen has the names; --json has all
_MOST_LAYERS = 12
_NAME = 40  # characters of a column's name
_OVERHEAD = 4096  # bytes around a push: its envelope, and what is said of the ledger
_STANDING = {
    KeyStanding.NEW: "NEW HERE. Ask who it is, by another way, whether this is their key. "
    "Accepting confirms it.",
    KeyStanding.SEEN: "seen: your policy has taken an offer with this name and key. Nobody has "
    "confirmed that the key is theirs. Accepting confirms it.",
    KeyStanding.KNOWN: "known: you have confirmed this key for this name",
    KeyStanding.OTHER_KEY: "ANOTHER KEY than the one that you confirmed for this name. It may be "
    "somebody else. Nothing is accepted until you confirm the new key.",
}
_BY_HOST = (
    "the host, with its own key, for somebody who has submitted by its page. Whether it was they, "
    "the host alone knows."
)
_CANNOT_KNOW = (
    "whether the name is true: it stands for a key, and for no more",
    "who the other members are, and whether their rows are real",
    "what the model is used for later, and by whom",
    "what the host keeps: all that has left may be kept for ever",
)
_WITHDRAWAL = (
    "You may withdraw at any time (tacit offers withdraw RUN): nothing leaves from then on. What "
    "has left stays with the host, and what it has cost stays spent."
)
_CLIP_NORM = (
    "C is the most that one unit can move an update, before noise; the noise is measured by it."
)
_EPSILON = (
    "ε bounds what all updates together can tell of one unit: they make no conclusion about it "
    "more than e^ε times likelier (ε 1: 2.7 times) than without it, but for a chance of δ."
)
_FIXED = (
    "Parameters fixed in advance: this figure counts on runs whose noise was not chosen after "
    "earlier results were seen. A lifetime bound holds however it was chosen."
)


@dataclass(frozen=True, slots=True)
class Screen:
    """All that an owner is shown of one offer.

    earlier: the answer to another offer of the same run name, or None. hours: of the owner's
    policy; None: it states none.
    """

    looked: Looked
    verdict: OfferVerdict
    earlier: Consent | None = None
    hours: str | None = None

    def sections(self) -> ScreenSections:
        """Return every part of the screen that has rows."""
        return tuple((title, tuple(rows)) for title, rows in self._parts() if rows)

    def _parts(self) -> Iterator[tuple[str, list[ScreenRow]]]:
        yield "Who asks", list(self._who())
        yield "What is read", list(self._read())
        yield "The model", list(self._model())
        yield "What leaves", list(self._leaves())
        yield "What it may cost", list(self._cost())
        yield "What you cannot know", [("-", each) for each in self._unknown()]
        if self.looked.notes:
            yield (
                "About your rows (nobody else is told)",
                [("-", printable(note)) for note in self.looked.notes],
            )
        yield "What now", list(self._now())

    def document(self) -> dict[str, Any]:
        """Return the screen for programs, with every name and number."""
        looked = self.looked
        offer = looked.offer
        columns = looked.columns
        spent = looked.cost
        return {
            "run": offer.run,
            "fingerprint": offer.fingerprint,
            "researcher": {
                "name": offer.researcher.name,
                "key": offer.researcher.fingerprint,
                "signed_by": offer.researcher.signed_by or "researcher",
                "standing": looked.standing.name.lower(),
            },
            "columns": None
            if columns is None
            else {"read": columns.read, "others": columns.others, "lacking": columns.lacking},
            "model": None
            if looked.model is None
            else {
                "name": looked.model.name,
                "parameters": looked.model.size,
                "layers": [[name, list(shape)] for name, shape in looked.model.layout],
            },
            "push_bytes": None if looked.model is None else _push_bytes(looked.model.size),
            "spending": None if spent is None else _document_of(spent),
            "hours": self.hours,
            "code": offer.code,
            "files": offer.files,
            "notes": looked.notes,
            "verdict": {
                "answer": self.verdict.answer.value,
                "kind": None if self.verdict.kind is None else self.verdict.kind.value,
                "reason": self.verdict.reason,
            },
        }

    # -- its parts ---------------------------------------------------------------------------------

    def _who(self) -> Iterator[ScreenRow]:
        offer = self.looked.offer
        yield "name", printable(offer.researcher.name)
        yield "key", offer.researcher.fingerprint
        if offer.researcher.signed_by == "host":
            yield "signed by", _BY_HOST
        yield "", _STANDING[self.looked.standing]
        yield "run", offer.run
        yield "offer", offer.fingerprint
        if self.earlier is not None:
            yield (
                "",
                f"Another offer of this run was {self.earlier.answer} on "
                f"{self.earlier.at:%Y-%m-%d}. This one is not the same.",
            )

    def _read(self) -> Iterator[ScreenRow]:
        looked = self.looked
        definition = looked.definition
        if looked.site.published:
            yield "your data", "none: a part of a published data set, which is nobody's"
        else:
            yield "your data", printable(looked.site.reader or str(looked.site.data))
        if definition is None:
            return
        yield "a unit is", _unit(definition.source.unit)
        columns = looked.columns
        if columns is not None and columns.read:
            yield f"read ({len(columns.read)})", _names(columns.read)
            if isinstance(definition.data, TableData):
                yield "learnt", _names(names_of(definition.data.target))
            if columns.lacking:
                yield "MISSING", _names(columns.lacking)
            if columns.others is not None:
                yield f"not read ({len(columns.others)})", _names(columns.others)
        elif isinstance(definition.data, OwnData):
            yield "read", _KINDS.get(definition.data.kind, _KINDS["python"])
        rows = definition.plans.own_rows or definition.plans.rows
        whose = "you state" if definition.plans.own_rows else "the run takes for you"
        yield "rows", f"{rows:,}, a public number that {whose}; how many there are stays here"

    def _model(self) -> Iterator[ScreenRow]:
        model = self.looked.model
        if model is None:
            return
        yield "network", f"{printable(model.name, 60)}: {model.size:,} numbers are trained"
        if isinstance(model, GraphModel) and model.frozen:
            fixed = sum(values.numel() for values in model.frozen.values())
            yield "", f"{fixed:,} numbers are fixed; they are public, and do not leave"
        layout = model.layout
        for name, shape in layout[:_MOST_LAYERS]:
            yield "", f"{printable(name, _NAME)}  {'×'.join(map(str, shape)) or '1'}"
        if len(layout) > _MOST_LAYERS:
            yield "", f"and {len(layout) - _MOST_LAYERS} more"
        for name in self.looked.offer.files:
            if name.endswith(".graph.json"):
                yield "graph", f"{name}: data, and no code; tacit show {name} shows every operation"

    def _leaves(self) -> Iterator[ScreenRow]:
        looked = self.looked
        if looked.model is None or looked.definition is None:
            return
        plan = looked.definition.plans.plan(looked.site.number)
        most = looked.cost.releases if looked.cost and looked.cost.private else None
        count = "" if most is None else f"at most {most:,}: "
        yield "updates", f"{count}one for each model that the host sends"
        hours = "at any hour: your policy states none"
        if self.hours is not None:
            hours = f"between {self.hours} alone, local time, as your policy says"
        yield "when", hours
        yield "each has", f"at most {_push_bytes(looked.model.size):,} bytes"
        if plan.private:
            yield (
                "in it",
                f"a sum over about {plan.batch:g} units drawn at random, each cut to length C, "
                f"with noise of {plan.noise_multiplier:g} C that is added here, before it leaves",
            )
            yield "", _CLIP_NORM
        else:
            yield "in it", "NO NOISE OF YOUR OWN: an update may tell of single rows"
        yield (
            "besides",
            "your member name, when you are here, the public number of rows, and how often "
            "this data was used before, at which noise",
        )
        yield (
            "seen by",
            "the host alone, over TLS. The model that comes of it is seen by every member, by the "
            "researcher, and by whoever they give it to.",
        )

    def _cost(self) -> Iterator[ScreenRow]:
        spent = self.looked.cost
        definition = self.looked.definition
        if spent is None or definition is None:
            return
        if not spent.private:
            yield "privacy", f"NONE: mechanism {definition.privacy.mechanism} promises nothing"
            return
        yield (
            "this run",
            f"ε ≤ {rounding.epsilon(spent.epsilon)}, and it ends at ε {spent.budget:g}",
        )
        yield "δ", f"{spent.delta:g}, for {_unit(definition.source.unit)}"
        yield "", _EPSILON
        for run, epsilon in spent.promised:
            yield (
                "promised",
                f"another ε {rounding.epsilon(epsilon)} to {run}, if it goes on to its end",
            )
        also = ", with what is promised" if spent.promised else ""
        yield (
            "this data",
            f"ε {rounding.epsilon(spent.before)} before, at most {rounding.epsilon(spent.after)} "
            f"after{also} (parameters fixed in advance)",
        )
        yield "", _FIXED
        if (share := spent.lifetime) is None:
            yield "lifetime", "you have set no bound on what this data may spend in all"
            return
        yield (
            "lifetime",
            f"of ε {share.epsilon:g} at δ {share.delta:g}, {_percent(share.before)} are spent "
            f"before, at most {_percent(share.after)} after (however later runs are chosen)",
        )

    def _unknown(self) -> Iterator[str]:
        yield from _CANNOT_KNOW
        yield "how good the model is: it is judged at the host, if at all, on rows of others"

    def _now(self) -> Iterator[ScreenRow]:
        verdict = self.verdict
        if verdict.answer is PolicyWord.REFUSE:
            yield "", f"This offer is refused: {printable(verdict.reason)}"
            if verdict.kind is not None:
                yield "", f"The host is told one word: {verdict.kind.value}."
            return
        for entry, sha256 in self.looked.offer.code.items():
            yield "", f"{printable(entry)} is code that you have put here, of SHA-256 {sha256}."
        if verdict.answer is PolicyWord.ACCEPT:
            yield "", "Your policy accepts this offer."
        yield "", _WITHDRAWAL


_KINDS = {
    "images": "every picture, and the class that its folder or table gives it",
    "python": "what your reader gives",
}


def _unit(unit: str) -> str:
    if unit in ("row", "record"):
        return "one row"
    return f"all rows with the same {printable(unit, _NAME)}, together"


def _names(names: Iterable[str]) -> str:
    shown = [printable(name, _NAME) for name in names]
    more = len(shown) - _MOST_NAMES
    text = ", ".join(shown[:_MOST_NAMES])
    if more > 0:
        return f"{text}, and {more} more"
    return text or "none"


def _percent(part: float) -> str:
    """Write what is spent, never less than it is."""
    return f"{math.ceil(100 * part - 1e-9)} %"


def _push_bytes(size: int) -> int:
    return 4 * size + _OVERHEAD


def _document_of(spent: RunCost) -> dict[str, Any]:
    return {
        "private": spent.private,
        "delta": spent.delta,
        "releases": spent.releases,
        "epsilon": spent.epsilon,
        "budget": spent.budget,
        "fixed_in_advance": {"before": spent.before, "after": spent.after},
        "promised": dict(spent.promised),
        "lifetime": None if spent.lifetime is None else asdict(spent.lifetime),
    }
