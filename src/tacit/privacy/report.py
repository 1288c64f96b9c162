"""A run's statement of privacy, and what its workers have spent: written once, shown everywhere.

`Promise` is made of the run definition, before anything is released. `EdgePrivacy`, `TotalPrivacy`
and `RunPrivacy` are what it has come to: the same in /v1/privacy, /v1/edges, /v1/status,
summary.json and ledger.json. An ε of inf (no guarantee) is null in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from tacit.privacy.accounting import History, Spend, epsilon_pld, epsilon_rdp, gdp
from tacit.privacy.accounting.history import SIDES, Purpose, by_side, of_all_rows
from tacit.privacy.ledger import Charged

# Of ε over workers. max: they hold different people; sum: different columns of the same people;
# together: the same people may be at several.
Composition = Literal["max", "sum", "together"]
_NONE = {"guarantee": "none", "trusted": "everybody who sees an update or a model"}
_TIMED = (
    "whoever sees when pushes come, as the module's time may tell of a row (model.control_flow is "
    "trusted)"
)
_CODE_RUN = (
    "whoever wrote the code of a front, which runs on rows (control_flow in data.features is "
    "trusted)"
)
_SIMULATED = {
    "simulated": True,
    "trusted": "everybody: the noise of a simulation comes from a seed",
    "guarantee": "none here; epsilon is what the same releases would cost with secret noise",
}


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The wording of a kind of guarantee: who is protected against whom."""

    guarantee: str
    unit: str
    adjacency: str
    noise_at: str
    trusted: str


AT_EDGE = Guarantee(
    guarantee="(epsilon, delta)-DP per record, at each edge, against everyone else",
    unit="record",
    adjacency="add-or-remove-one",
    noise_at="edge",
    trusted="nobody but the edge itself",
)
AT_SERVER = Guarantee(
    guarantee="(epsilon, delta)-DP per edge, against everyone who sees models, not against the "
    "aggregator",
    unit="edge",
    adjacency="replace-an-edges-updates-by-zero",
    noise_at="server",
    trusted="the aggregator, and whoever can read what it receives (the broker)",
)
AT_PARTY = Guarantee(
    guarantee=(
        "(epsilon, delta)-DP of a record's features at one party, mu-GDP, against server and "
        "other parties; epsilon "
        "and mu of the run: of a person at all parties together"
    ),
    unit="record's features",
    adjacency="replace-one",
    noise_at="edge",
    trusted="nobody but each party itself, with its features",
)


_OF_PERSON = (
    "(epsilon, delta)-DP of a person's columns at all parties together, mu-GDP, against server and "
    "other parties; epsilon and mu of an edge: of the columns there; that a person has a label is "
    "public to the parties"
)


class EdgePrivacy(BaseModel):
    """One edge's spending, by its own ledger."""

    model_config = ConfigDict(extra="allow", frozen=True)

    epsilon_pld: float | None = Field(description="tight; null: no guarantee")
    epsilon_rdp: float | None = Field(
        description="an independent, looser accountant; null: no guarantee"
    )
    delta: float
    pushes: int
    noise_multiplier: float | None
    sampling_rate: float | None
    clip: list[float] = Field(description="the bounds that the edge accepts")
    mechanism: str
    adjacency: str
    budget: float | None
    budget_of: str = Field("data", description="data: of all of ε; run: of this run's part of it")
    # Not in the schema of REST, which promises no more than readers need:
    batch: SkipJsonSchema[float]
    charged: SkipJsonSchema[dict[str, Any]]
    history: SkipJsonSchema[list[Any]]  # rows of q, z, count, and the side where it is one
    mu: SkipJsonSchema[float] = 0.0
    _at_most: History = PrivateAttr(())

    def model_post_init(self, context: Any, /) -> None:
        """Take from `context` the history that ε is computed of."""
        self._at_most = context or ()

    @property
    def at_most(self) -> History:
        """The history that ε is computed of: no less than `history`."""
        return self._at_most

    def document(self) -> dict[str, Any]:
        """Return it as for JSON; an ε without a guarantee stays inf."""
        return self.model_dump(exclude_unset=True)


class TotalPrivacy(BaseModel):
    """The run's guarantee, without its edges. Types are strict, as files of strangers hold it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    guarantee: str
    unit: str = Field(
        description="what is protected: record, or edge (all that one edge ever sent)"
    )
    adjacency: str
    noise_at: str = Field(description="edge or server")
    trusted: str = Field(description="who sees more than the guarantee covers")
    delta: float
    epsilon: float | None


class RunPrivacy(TotalPrivacy):
    """The run's guarantee."""

    mu: float | None = Field(
        None, description="of a vertical run: mu-GDP of a person at all parties together"
    )
    labels_epsilon: float | None = Field(
        None, description="of a vertical run: of the labels; null: in clear"
    )
    counts: str = Field("", description="what else than this run is in ε")
    sides: dict[str, float | None] | None = Field(
        None,
        description="where edges judge: the largest ε of rows trained on, and of rows held out; ε "
        "is the larger, not the sum",
    )
    edges: dict[str, EdgePrivacy]

    def document(self) -> dict[str, Any]:
        """Return it as for JSON; an ε without a guarantee stays inf."""
        return self.model_dump(exclude_unset=True)


@dataclass(frozen=True, slots=True)
class Promise:
    """A run's statement of privacy, from its definition.

    budget: gives a worker's ε by its name. apart: how many ledgers of this machine the run file
    says are of other people (data.apart_from); what they have spent is in no ε here. Their names,
    and how alike the rows are, stand on the owner's screen alone. lasting: whether a ledger
    outlasts the run, so that ε counts all runs of its data. of_members: whether the budget is this
    run's alone, as in a federation, where owners bound the life of their data themselves. purpose:
    of this run's releases, of which z and q are shown. A ledger may have others, too.
    """

    guarantee: Guarantee
    composition: Composition
    private: bool
    delta: float
    batch: float
    clip: tuple[float, float]
    mechanism: str
    budget: Callable[[str], float]
    labels_epsilon: float | None = None
    apart: int = 0
    lasting: bool = False
    of_members: bool = False
    purpose: Purpose = "training"

    def spent(self, edge: str, history: History, charged: Charged, at_most: History) -> EdgePrivacy:
        """Return what `edge` has spent.

        at_most: the history that ε is computed from, which is never below the true one. δ and all
        else is as the definition has it: another δ would make an edge's ε look small.
        """
        trained = [row for row in history if row.side != "held_out"]
        of_run = [row for row in trained if row.purpose == self.purpose] or trained
        last = of_run[-1] if of_run else None
        fields: dict[str, Any] = {
            "epsilon_pld": epsilon_pld(at_most, self.delta),
            "epsilon_rdp": epsilon_rdp(at_most, self.delta),
            "delta": self.delta,
            "pushes": sum(row.count for row in trained),
            "noise_multiplier": last.noise_multiplier if last else None,
            "sampling_rate": last.sampling_rate if last else None,
            "clip": list(self.clip),
            "mechanism": self.mechanism,
            "adjacency": self.guarantee.adjacency,
            "budget": self.budget(edge),
            "batch": self.batch,
            "charged": {"count": charged.count, "head": charged.head.hex()},
            "history": [_listed(row) for row in history],
        }
        if self.of_members:
            fields["budget_of"] = "run"
        if self.composition == "sum":
            fields["mu"] = gdp.mu(history)
        return EdgePrivacy.model_validate(fields, context=at_most)

    def epsilon(self, edges: Iterable[EdgePrivacy]) -> float:
        """Return ε of the run: the largest of any edge, or one person's at all parties."""
        if self.composition == "sum":
            return gdp.epsilon(gdp.compose(edge.mu for edge in edges), self.delta)
        if self.composition == "together":
            return composed("together", (edge.at_most for edge in edges), self.delta)
        return max((edge.epsilon_pld or 0.0 for edge in edges), default=0.0)

    def for_unit(self, unit: str) -> Promise:
        """Return the promise for all rows of a unit together; unit: the column that names it."""
        words = self.guarantee.guarantee.replace("per record", f"per {unit}")
        return replace(self, guarantee=replace(self.guarantee, guarantee=words, unit=unit))

    def of_person(self) -> Promise:
        """Return the promise for people whose columns are at parties, which keep their ledgers."""
        guarantee = replace(self.guarantee, guarantee=_OF_PERSON, unit="person")
        return replace(self, guarantee=guarantee, lasting=True)

    def timed(self) -> Promise:
        """Return the promise where a module's steps, and so its time, follow a row's numbers."""
        return self._trusting(_TIMED)

    def with_code(self) -> Promise:
        """Return the promise where a front's own code runs on rows: that it parts them is tried."""
        return self._trusting(_CODE_RUN)

    def _trusting(self, who: str) -> Promise:
        before = self.guarantee.trusted
        if not before.startswith("nobody"):
            who = f"{before}, and {who}"
        return replace(self, guarantee=replace(self.guarantee, trusted=who))

    def total(self, edges: Mapping[str, EdgePrivacy], *, simulated: bool = False) -> RunPrivacy:
        """Return the privacy of the whole run.

        simulated: its noise comes from a seed, and protects nobody.
        """
        stated: dict[str, Any] = asdict(self.guarantee)
        if not self.private:
            stated |= _NONE
        elif simulated:
            stated |= _SIMULATED
        else:
            if self.apart:
                stated["apart_from"] = self.apart
            if self.lasting:
                stated["counts"] = "all runs of the data"
        if self.composition == "sum":
            stated["mu"] = gdp.compose(edge.mu for edge in edges.values())
            stated["labels_epsilon"] = self.labels_epsilon
        if self.composition == "max" and (sides := self._sides(edges.values())):
            stated["sides"] = sides
        epsilon = self.epsilon(edges.values())
        return RunPrivacy(**stated, delta=self.delta, epsilon=epsilon, edges=dict(edges))

    def _sides(self, edges: Iterable[EdgePrivacy]) -> dict[str, float]:
        """Return the largest ε of each side, over edges; empty where no edge has held rows out."""
        split = [by_side(edge.at_most) for edge in edges]
        apart = [sides for sides in split if len(sides) == len(SIDES)]
        if not apart:
            return {}
        return {
            side: max(epsilon_pld(sides[place], self.delta) for sides in apart)
            for place, side in enumerate(SIDES)
        }


def _listed(row: Spend) -> list[float | int | str]:
    listed: list[float | int | str] = [row.sampling_rate, row.noise_multiplier, row.count]
    if row.side != "both":
        listed.append(row.side)
    return listed


def composed(composition: Composition, histories: Iterable[History], delta: float) -> float:
    """Return ε of a run at `delta`, of the histories of its workers."""
    if composition == "sum":
        return gdp.epsilon(gdp.compose(map(gdp.mu, histories)), delta)
    if composition == "together":
        # A person's rows may be on another side at each edge.
        return epsilon_pld(of_all_rows(chain.from_iterable(histories)), delta)
    return max((epsilon_pld(history, delta) for history in set(histories)), default=0.0)
