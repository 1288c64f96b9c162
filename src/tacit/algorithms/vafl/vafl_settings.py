"""[algorithm] of VAFL (arXiv:2007.06081). Letters are the paper's."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.step_sizes import StepSizes
from tacit.config.algorithm_contract import AlgorithmSection, DataSection, Sections, WorkerKind
from tacit.config.model import ModelSection
from tacit.config.party_columns import ColumnsData
from tacit.config.plans import Plans
from tacit.config.traits import ReleaseTime, Traits
from tacit.models import Model
from tacit.models.objectives import Objective
from tacit.models.zoo.embedding_networks import head
from tacit.privacy.accounting import gdp
from tacit.privacy.policy import Positive
from tacit.privacy.release import Mechanism, Plan
from tacit.privacy.release.embeddings import Mode, declared
from tacit.privacy.report import AT_PARTY, Composition, Promise

_UNREAD = 1.0  # warn below this ratio of an embedding's length to its noise
_LEARNT = 8.0  # √(people / width) / 2z from which credit and adult were learnt (docs/vertical.md)
_RELEASED: dict[str, ReleaseTime] = {"trained": "in turn", "cached": "once"}  # by mode


class Vafl(StepSizes, AlgorithmSection):
    """VAFL: parties hold different features of the same people.

    [model] is θ_0's. `privacy.clip` is B. `privacy.pushes` counts the releases of one record that
    the budget must cover, and in mode `trained` all vectors of a party. `privacy.noise_multiplier`
    is z = c/(2B), so that one release is (1/z)-GDP. [edges] are the parties.
    """

    worker: ClassVar[WorkerKind] = "party"
    columns: ClassVar[bool] = True
    composition: ClassVar[Composition] = "sum"

    name: Literal["vafl"] = Field(description="which")
    t: int = Field(1, gt=0, description="parties waited for in an iteration; 1: Algorithm 1")
    synchronous: bool = Field(
        False, description="all parties, on common batches: synchronous block-wise SGD"
    )
    max_delay: int | None = Field(
        None, gt=0, description="D: older embeddings are asked for anew; None: unbounded"
    )
    steps_rule: Literal["constant", "theorem_1", "theorem_2", "theorem_3", "theorem_4"] = Field(
        "constant", description="step sizes: fixed, or by the paper's theorem"
    )
    learning_rate: Positive = Field(0.1, description="η of `constant`")
    server_share: Positive = Field(1.0, description="η_0/η_m of `constant`; appendix G.3: 1/M")
    smoothness: Positive = Field(1.0, description="L, Lipschitz constant of the gradient")
    convexity: Positive = Field(1e-3, description="μ of theorems 2 and 4")
    delay_bound: int = Field(
        0, ge=0, description="D of theorems 1 and 2, where max_delay does not say it"
    )
    tail: Positive = Field(1.0, description="p̄ of Assumption 5")
    ratio: float = Field(0.5, gt=0, lt=1, description="ρ of Assumption 5")
    rarest: float | None = Field(None, gt=0, le=1, description="min q_m; None: 1/M")
    scale: Positive = Field(1.0, description="c_η of theorems 1 and 3")
    embedding: Literal["linear", "mlp", "cnn", "lstm", "columns"] = Field(
        "linear",
        description="a party's model θ_m; columns: its columns themselves, with public constants",
    )
    width: int = Field(10, gt=0, le=4096, description="numbers in an embedding")
    hidden: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (), strict=False, description="units inside, mlp and lstm"
    )
    channels: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (10, 20), strict=False, description="convolutions, cnn"
    )
    kernel: int = Field(3, ge=1, le=15, description="side of a convolution's window, cnn")
    activation: Literal["relu", "tanh"] = Field("relu", description="inside embeddings")
    smoothing: float = Field(
        0.0, ge=0, le=1e3, description="c_l of (11b): uniform noise before inner activations"
    )
    combine: Literal["sum", "concat"] = Field(
        "sum", description="how θ_0's model takes the embeddings"
    )
    quadrants: bool = Field(False, description="four parties hold a quarter of an image each")
    regularization: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(
        (0.0,),
        strict=False,
        description="λ of r(θ_m) = λ/2·||θ_m||²: one for all, or one for each party",
    )
    mode: Literal["cached", "fresh", "dp_sgd", "trained"] = Field(
        "cached",
        description="what θ_m may learn, and how often a record is released (docs/privacy.md)",
    )
    public_test: bool = Field(
        False,
        description="the people who are tested on are public: a party sends their embeddings "
        "without noise; implied by own columns",
    )
    step_clip: Positive = Field(1.0, description="dp_sgd: C of one record's gradient of θ_m")
    label_epsilon: Positive | None = Field(
        None, description="ε_y of one randomised response; None: labels in clear"
    )

    def unread(self) -> list[str]:
        """Return `schedule` and `warm_up` where given beside a theorem's own step sizes."""
        stated = self.model_fields_set & {"schedule", "warm_up"}
        if self.steps_rule == "constant":
            return []
        return sorted(stated)

    def traits(self, workers: int) -> Traits:
        """Return the traits: T counts iterations, each of one or more activations.

        Outside mode `trained` a record is released once, or as often as it is asked for.
        """
        return Traits(
            uploads=workers if self.synchronous else self.t,
            released=_RELEASED.get(self.mode, "when asked"),
        )

    def promise(self, plans: Plans, clip: float) -> Promise:
        """Return the promise for one record's features at one party.

        Embeddings are clipped to B, which does not change during a run.
        """
        return replace(
            super().promise(plans, clip),
            guarantee=AT_PARTY,
            clip=(clip, clip),
            mechanism=declared(self.release_mode(plans.default.mechanism)),
            labels_epsilon=self.label_epsilon,
        )

    def hindered(self, plan: Plan) -> list[str]:
        """Warn where noise hides an embedding: it is of one record, so nothing averages it."""
        z = 1 / gdp.mu_within(plan.epsilon, plan.delta)
        if self.public_test or self.embedding == "columns":
            return self._hidden_together(z, plan.batch / plan.sampling_rate)
        signal = 1 / (2 * z * math.sqrt(self.width))
        if signal >= _UNREAD:
            return []
        return [
            f"noise hides what a record's embedding says: its length is at most {signal:.2g} of "
            f"its noise's (1 / (2·z·√width), z ≥ {z:.2g} at ε = {plan.epsilon:g}): expect "
            "no more than a constant reaches; a larger ε helps, or a smaller algorithm.width"
        ]

    def _hidden_together(self, z: float, people: float) -> list[str]:
        """Warn where noise hides what the columns of all people say together.

        Each coordinate's covariance with the label has noise of about 2z/√people, and there are
        `width` of them.
        """
        clear = math.sqrt(people / self.width) / (2 * z)
        if clear >= _LEARNT:
            return []
        return [
            f"noise hides much of what the columns of {people:.0f} people say together "
            f"(√(people / width) / 2z = {clear:.1f}, and {_LEARNT:g} is enough): expect a model "
            "that ranks a little better than chance; more people, a larger ε or fewer columns help"
        ]

    def release_mode(self, mechanism: Mechanism) -> Mode:
        """Return how embeddings are released: in `mode` where the noise is Gaussian."""
        if mechanism == "gaussian":
            return self.mode
        if mechanism == "paper":
            return "paper"
        return "none"

    def build_model(
        self,
        section: ModelSection,
        shape: tuple[int, ...],
        classes: int,
        workers: int,
        folder: Path,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> Model:
        """Return the model of θ_0, which takes all parties' embeddings. Raises ConfigError."""
        if section.name == "mlp":
            hidden = section.hidden
        else:
            hidden = ()
        return head(self.combine, workers, self.width, classes, hidden)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        parties = run.edges.count
        privacy = run.privacy
        if privacy.mechanism not in ("gaussian", "none", "paper") or privacy.noise_at != "edge":
            raise ValueError(
                f"privacy.mechanism={privacy.mechanism}: vafl knows gaussian, none and paper, at "
                f"the party (noise_at)"
            )
        if privacy.mechanism == "paper" and privacy.noise_multiplier is None:
            raise ValueError(
                "privacy.noise_multiplier: the paper's noise has no calibration; set c/(2·clip)"
            )
        if self.t > parties:
            raise ValueError(f"algorithm.t={self.t} is above edges.count={parties}")
        if self.synchronous and self.t not in (1, parties):
            raise ValueError(
                f"algorithm.t={self.t}: synchronous waits for all {parties} parties; leave t alone"
            )
        if len(self.regularization) not in (1, parties):
            raise ValueError(
                f"algorithm.regularization: {len(self.regularization)} numbers for {parties} "
                f"parties"
            )
        if self.quadrants and parties != 4:
            raise ValueError(f"edges.count={parties}: quadrants are four")
        _columns_agree(run.data)
        self._embedded_agree(run)
        if run.guard.norm_factor is not None:
            raise ValueError(
                f"guard.norm_factor={run.guard.norm_factor:g}: vafl's uploads are no gradients"
            )
        if run.model.name != "logistic" and self.combine == "sum":
            raise ValueError(
                f"model.name={run.model.name}: a sum of embeddings needs logistic; or combine = "
                f"concat"
            )

    def _embedded_agree(self, run: Sections) -> None:
        """Raise ValueError for what own columns, or an embedding that learns nothing, rule out."""
        own = isinstance(run.data, ColumnsData)
        if (own or self.public_test) and self.mode != "cached":
            what = "data.kind=columns" if own else "algorithm.public_test=true"
            raise ValueError(
                f"algorithm.mode={self.mode}: {what} is for cached, where a person's columns are "
                "released once"
            )
        if own and self.embedding != "columns":
            raise ValueError(
                f'algorithm.embedding={self.embedding}: own columns need embedding = "columns"'
            )
        if self.embedding == "columns" and (self.combine != "concat" or self.mode != "cached"):
            raise ValueError(
                f"algorithm.combine={self.combine}, mode={self.mode}: embedding = columns learns "
                'nothing itself; it needs combine = "concat" and mode = "cached"'
            )
        if isinstance(run.data, ColumnsData) and self.width != run.data.most_places():
            raise ValueError(
                f"algorithm.width={self.width}: the widest party's columns take "
                f"{run.data.most_places()} places; write that"
            )
        if own and run.privacy.private and run.privacy.pushes != 1:
            raise ValueError(
                f"privacy.pushes={run.privacy.pushes}: a person's columns are released once; leave "
                "it out"
            )


def _columns_agree(data: DataSection) -> None:
    if data.kind not in ("benchmark", "columns"):
        raise ValueError(
            f"data.kind={data.kind}: vafl's parties hold columns: of a published data set, or of "
            'your own, data.kind = "columns"'
        )
    if data.partition != "iid" or data.spare:
        key, value = ("spare", data.spare) if data.spare else ("partition", data.partition)
        raise ValueError(f"data.{key}={value}: vafl divides columns; leave it alone")
