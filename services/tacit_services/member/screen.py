"""What an owner reads of an offer before anything of the rows is used, and that stays as it is.

What changes while an offer waits, as its costs do, is added at each reading (offer_now.py).

Every word that came with the offer, or from the file, is shown as text in one line: control
characters and what turns a line around are `?`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tacit.config.own_data import OwnData
from tacit.config.own_table import TableData
from tacit.config.own_target import names_of
from tacit.models.graph.graph_model import GraphModel
from tacit.shown import printable
from tacit_services.member.looking import Looked
from tacit_services.member.screen_text import WHO, ScreenRow, ScreenSections
from tacit_services.member.unit_words import unit_caution, unit_words

_MOST_NAMES = 30  # columns, or layers, of which the screen has the names
_MOST_LAYERS = 12
_NAME = 40  # characters of a column's name
_QUESTION = 66  # of a question
_OVERHEAD = 4096  # bytes around a push: its envelope, and what is said of the ledger
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


@dataclass(frozen=True, slots=True)
class Screen:
    """All of one offer that stays as it is.

    hours: of the owner's policy; None: it states none.
    """

    looked: Looked
    hours: str | None = None

    def sections(self) -> ScreenSections:
        """Return every part of the screen that has rows."""
        return tuple((title, tuple(rows)) for title, rows in self._parts() if rows)

    def _parts(self) -> Iterator[tuple[str, list[ScreenRow]]]:
        yield WHO, list(self._who())
        yield "What leaves", list(self._leaves())
        yield "What is read", list(self._read())
        yield "The model", list(self._model())
        yield "What you cannot know", [("-", each) for each in self._unknown()]
        if self.looked.notes:
            yield (
                "About your rows (nobody else is told)",
                [("-", printable(note)) for note in self.looked.notes],
            )

    # -- its parts ---------------------------------------------------------------------------------

    def _who(self) -> Iterator[ScreenRow]:
        offer = self.looked.offer
        yield "name", printable(offer.researcher.name)
        yield "key", offer.researcher.fingerprint
        if offer.researcher.signed_by == "host":
            yield "signed by", _BY_HOST
        yield "run", offer.run
        yield "offer", offer.fingerprint

    def _read(self) -> Iterator[ScreenRow]:
        looked = self.looked
        definition = looked.definition
        if looked.site.published:
            yield "your data", "none: a part of a published data set, which is nobody's"
        else:
            yield "your data", printable(looked.site.reader or str(looked.site.data))
        if definition is None:
            return
        yield "a unit is", unit_words(definition.source.unit)
        if (caution := unit_caution(definition.source.unit)) is not None:
            yield "", caution
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
        for entry, sha256 in looked.offer.code.items():
            yield "code", f"{printable(entry)}: code that you have put here, of SHA-256 {sha256}"
        yield from self._learnt()
        rows = definition.plans.own_rows or definition.plans.rows
        whose = "you state" if definition.plans.own_rows else "the run takes for you"
        yield "rows", f"{rows:,}, a public number that {whose}; how many there are stays here"

    def _learnt(self) -> Iterator[ScreenRow]:
        definition = self.looked.definition
        data = None if definition is None else definition.data
        if isinstance(data, TableData) and data.learnt is not None:
            yield "learnt before", f"{data.learnt.words}, as the run states"

    def _model(self) -> Iterator[ScreenRow]:
        model = self.looked.model
        if model is None:
            return
        if self._questions:
            yield "", "none: nothing is trained, and these questions are asked, once:"
            for question in self._questions:
                yield "", _cut(question)
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
                yield "graph", f"{name}: data, and no code"

    @property
    def _questions(self) -> tuple[str, ...]:
        definition = self.looked.definition
        return () if definition is None or definition.ask is None else definition.ask.questions

    def _leaves(self) -> Iterator[ScreenRow]:
        looked = self.looked
        if looked.model is None or looked.definition is None:
            return
        plan = looked.definition.plans.plan(looked.site.number)
        if self._questions:
            yield "answers", "1, to all questions together"
        else:
            yield "updates", "one for each model that the host sends"
        yield from self._looks()
        hours = "at any hour: your policy states none"
        if self.hours is not None:
            hours = f"between {self.hours} alone, local time, as your policy says"
        yield "when", hours
        yield "each has", f"at most {_push_bytes(looked.model.size):,} bytes"
        if plan.private and self._questions:
            yield (
                "in it",
                "a sum over all units, to which random noise is added here, before it leaves. One "
                "unit can move the sum by 1 at most; the noise has "
                f"{plan.noise_multiplier:.4g} times that size",
            )
        elif plan.private:
            yield (
                "in it",
                f"a sum over about {plan.batch:g} units drawn at random, to which random noise is "
                "added here, before it leaves. The noise is "
                f"{plan.noise_multiplier:.4g} times the most that one unit can move the sum",
            )
        else:
            yield "in it", "NO NOISE OF YOUR OWN: an update may tell of single rows"
        yield (
            "besides",
            "your member name, when you are here, the public number of rows, and how often "
            "this data was used before, at which noise",
        )
        yield (
            "seen by",
            "the host alone, over TLS. Every member and the researcher see the "
            f"{'answers' if self._questions else 'model'} it helps to make, and may give it away",
        )

    def _unknown(self) -> Iterator[str]:
        yield from _CANNOT_KNOW
        definition = self.looked.definition
        if definition is None or definition.judging is None:
            yield "how good the model is: it is judged at the host, if at all, on rows of others"

    def _looks(self) -> Iterator[ScreenRow]:
        definition = self.looked.definition
        judging = None if definition is None else definition.judging
        if judging is None:
            return
        yield (
            "looks",
            f"{judging.looks}, each with noisy counts of how the model does on about "
            f"{100 * judging.held_out:g} % of your units, which it is not trained on: for the life "
            f"of the data. They cost these units ε {judging.epsilon:g} in all",
        )


_KINDS = {
    "images": "every picture, and the class that its folder or table gives it",
    "python": "what your reader gives",
}


def _names(names: Iterable[str]) -> str:
    shown = [printable(name, _NAME) for name in names]
    more = len(shown) - _MOST_NAMES
    text = ", ".join(shown[:_MOST_NAMES])
    if more > 0:
        return f"{text}, and {more} more"
    return text or "none"


def _cut(question: str) -> str:
    """Return a question for the screen; one that is cut says so."""
    if len(question) <= _QUESTION:
        return printable(question)
    return f"{printable(question, _QUESTION - 1)}…"


def _push_bytes(size: int) -> int:
    return 4 * size + _OVERHEAD
