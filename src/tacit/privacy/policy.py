"""The data owner's policy: what an edge allows.

Pure checks. A policy can only forbid. What it does not name is as the run file says; nothing that a
server sends loosens it. The keys of FEDERATION are for members of a federation, who are shown
offers. Outside of one they forbid nothing, but for a lifetime.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tacit import shown
from tacit.digests import Sha256
from tacit.errors import ConfigError, PolicyForbids, PrivacyError
from tacit.privacy.accounting import Lifetime
from tacit.privacy.plan import Mechanism, NoiseAt, Plan

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ANYBODY = "*"
# What has a meaning in a federation only.
FEDERATION = ("accept", "researchers", "code", "columns", "hours")
_HOURS = re.compile(r"((?:[01]\d|2[0-3]):[0-5]\d)-((?:[01]\d|2[0-3]):[0-5]\d)")


class Policy(BaseModel):
    """Bounds on a run's plan, set by the owner of the data; None means not bounded.

    `mechanisms`, `algorithms`, `models` and `noise_at` list what is allowed. In a federation
    `accept` states who answers an offer: `ask` its owner, `within` this policy. `lifetime_epsilon`
    and `lifetime_delta` bound what the data spends over all runs. `researchers` may ask. `code`
    lists the SHA-256 of the owner's files that an offer may name ("never": none), `columns` what
    may be read, `hours` when it may work, in local time. `questions` lists the kinds of question
    that may be asked, as "count" and "mean". An empty list forbids all.

    >>> from tacit.privacy.release import Plan
    >>> plan = Plan("gaussian", 0.05, 50.0, 1.2, 0.1, 1.0, epsilon=2.0, delta=1e-5)
    >>> policy = parse("max_epsilon = 4.0", "policy.toml")
    >>> policy.check(plan, "mapa", "logistic")
    >>> try:
    ...     Policy(max_epsilon=1.0).check(plan, "mapa", "logistic")
    ... except PolicyForbids as error:
    ...     print(str(error).partition(";")[0])
    policy max_epsilon=1.0: the run file says privacy.epsilon=2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_epsilon: Positive | None = None
    max_delta: float | None = Field(None, gt=0, lt=1)
    min_noise_multiplier: Positive | None = None
    clip_min: Positive | None = None
    clip_max: Positive | None = None
    mechanisms: tuple[Mechanism, ...] | None = Field(None, strict=False)  # TOML has no tuples
    algorithms: tuple[str, ...] | None = Field(None, strict=False)
    models: tuple[str, ...] | None = Field(None, strict=False)
    noise_at: tuple[NoiseAt, ...] = Field(
        ("edge",), strict=False, description="server must be named to be allowed"
    )
    accept: Literal["ask", "within"] = "ask"
    lifetime_epsilon: Positive | None = None
    lifetime_delta: float = Field(1e-5, gt=0, lt=1)
    researchers: tuple[str, ...] = Field((ANYBODY,), strict=False)
    code: tuple[Sha256, ...] = Field((), strict=False)
    columns: tuple[str, ...] | None = Field(None, strict=False)
    questions: tuple[str, ...] | None = Field(None, strict=False)
    hours: str | None = None

    @field_validator("code", mode="before")
    @classmethod
    def _no_code(cls, value: object) -> object:
        return () if value == "never" else value

    @field_validator("hours")
    @classmethod
    def _span(cls, value: str | None) -> str | None:
        if value is not None:
            _hours(value)
        return value

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if (
            self.clip_min is not None
            and self.clip_max is not None
            and self.clip_min > self.clip_max
        ):
            raise ValueError(f"clip_min={self.clip_min} is above clip_max={self.clip_max}")
        if self.lifetime_epsilon is not None:
            try:
                Lifetime.begun(self.lifetime_epsilon, self.lifetime_delta)
            except PrivacyError as error:
                raise ValueError(
                    f"lifetime_epsilon={self.lifetime_epsilon}: pays for no release at "
                    f"lifetime_delta={self.lifetime_delta}; one from 0.5 on does at 1e-5"
                ) from error
        return self

    def check(self, plan: Plan, algorithm: str, model: str) -> None:
        """Raise PolicyForbids unless `plan` is within this policy.

        The one line names the field and both values.
        """
        _require_listed("mechanisms", self.mechanisms, "privacy.mechanism", plan.mechanism)
        _require_listed("algorithms", self.algorithms, "algorithm.name", algorithm)
        _require_listed("models", self.models, "model.name", model)
        _require_listed("noise_at", self.noise_at, "privacy.noise_at", plan.noise_at)
        # What has no guarantee has an infinite ε and no noise, whatever its own numbers say.
        guaranteed = plan.clip_is_bounded
        if guaranteed:
            epsilon = plan.epsilon
        else:
            epsilon = math.inf
        if guaranteed:
            noise_multiplier = plan.noise_multiplier
        else:
            noise_multiplier = 0.0
        _require_at_most("max_epsilon", self.max_epsilon, "privacy.epsilon", epsilon)
        _require_at_most("max_delta", self.max_delta, "privacy.delta", plan.delta)
        _require_at_least(
            "min_noise_multiplier", self.min_noise_multiplier, "noise_multiplier", noise_multiplier
        )
        _require_at_least("clip_min", self.clip_min, "privacy.clip_min", plan.clip_min)
        _require_at_most("clip_max", self.clip_max, "privacy.clip_max", plan.clip_max)

    def check_looks(self, plan: Plan | None) -> None:
        """Raise PolicyForbids unless the looks at held-out rows are within this policy's budget.

        plan: of the looks; None: the run has none. Training and looks are of different units, so
        each is compared by itself.
        """
        if plan is None:
            return
        _require_at_most("max_epsilon", self.max_epsilon, "evaluation.epsilon", plan.epsilon)
        _require_at_least(
            "min_noise_multiplier",
            self.min_noise_multiplier,
            "the noise multiplier of looks",
            plan.noise_multiplier,
        )

    def check_alone(self, plan: Plan) -> None:
        """Raise PolicyForbids if a run outside of federations may spend more than a lifetime.

        Its budget is for the whole ledger, whose q and z are fixed in advance there. So it is
        compared as it is.
        """
        if self.lifetime_epsilon is not None:
            bounded = plan.epsilon if plan.private else math.inf
            _require_at_most("lifetime_epsilon", self.lifetime_epsilon, "privacy.epsilon", bounded)
            _require_at_most("lifetime_delta", self.lifetime_delta, "privacy.delta", plan.delta)

    @property
    def idle_alone(self) -> tuple[str, ...]:
        """The keys that this policy states, and that forbid nothing outside of a federation."""
        return tuple(key for key in FEDERATION if key in self.model_fields_set)

    def check_researcher(self, name: str) -> None:
        """Raise PolicyForbids unless the researcher of this name may ask.

        A name proves nothing: whose key has signed the offer is the caller's to check.
        """
        if ANYBODY not in self.researchers and name not in self.researchers:
            raise _offer_refused("researchers", list(self.researchers), f"researcher.name={name}")

    def check_code(self, hashes: Iterable[str]) -> None:
        """Raise PolicyForbids unless all code that an offer names, by SHA-256, is allowed."""
        for digest in hashes:
            if digest not in self.code:
                allowed = list(self.code) or "never"
                raise _offer_refused("code", allowed, f"it needs code of SHA-256 {digest}")

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise PolicyForbids unless all columns that an offer reads are allowed."""
        for name in names:
            if self.columns is not None and name not in self.columns:
                raise _offer_refused("columns", list(self.columns), f"it reads column {name}")

    def check_questions(self, kinds: Iterable[str]) -> None:
        """Raise PolicyForbids unless all kinds of question that a run asks are allowed."""
        for kind in kinds:
            _require_listed("questions", self.questions, "ask.questions", kind)

    def allows_at(self, now: str) -> bool:
        """Check whether work is allowed at `now`, HH:MM in local time.

        >>> night = parse('hours = "20:00-06:00"', "policy.toml")
        >>> [night.allows_at(now) for now in ("06:00", "12:00", "20:00", "00:00", "05:59")]
        [False, False, True, True, True]
        """
        if self.hours is None:
            return True
        begin, end = _hours(self.hours)
        if begin < end:
            return begin <= now < end
        return now >= begin or now < end

    def check_hours(self, now: str) -> None:
        """Raise PolicyForbids unless work is allowed at `now`, HH:MM in local time."""
        if not self.allows_at(now):
            raise PolicyForbids(
                f"policy hours={self.hours}: it is {now}; this member does not work now", "hours"
            )

    def check_offer(self, offer: OfferTerms) -> None:
        """Raise PolicyForbids unless an offer is within this policy, at any hour.

        Whether it is taken without asking is said by `accept`.
        """
        self.check_researcher(offer.researcher)
        self.check_code(offer.code)
        self.check_columns(offer.columns)
        self.check_questions(offer.questions)
        self.check_looks(offer.looks)
        self.check(offer.plan, offer.algorithm, offer.model)


@dataclass(frozen=True, slots=True)
class OfferTerms:
    """What an offer asks of a member, as far as a policy judges it.

    plan, algorithm, model: of the run. researcher: the name of who asks. code: SHA-256 of files
    that the owner must have put there. columns: what it reads. questions: the kinds of question
    that it asks. looks: the plan of its looks at held-out rows; None: it has none.
    """

    plan: Plan
    algorithm: str
    model: str
    researcher: str
    code: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    looks: Plan | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """The privacy settings that a server assumes; an edge with others refuses its models.

    mechanism: the mechanism and where it adds noise, as `Plan.declared` has it. noise_multiplier:
    None if the server does not state it.
    """

    mechanism: str
    sampling_rate: float
    noise_multiplier: float | None = None


def parse(text: str, origin: str) -> Policy:
    """Return the policy in the TOML `text`.

    Raises ConfigError: one line with `origin`, field and value.
    """
    try:
        content = tomllib.loads(text)
        # A number that cannot be printed (0x and 5,000 digits) could not be named in an error
        # below.
        repr(content)
    # ValueError and RecursionError also come of an integer of 5,000 digits, or as many brackets.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not TOML: {error}") from error
    try:
        return Policy.model_validate(content)
    except ValidationError as error:
        problems = []
        for item in error.errors(include_url=False):
            unknown = item["type"] == "extra_forbidden"
            field = ".".join(map(str, item["loc"]))
            if unknown:
                message = "unknown key"
            else:
                message = item["msg"].removeprefix("Value error, ")
            stated = shown.quoted(item["input"])
            problems.append(f"{field}={stated}: {message}" if field else message)
        raise ConfigError(f"{origin}: {'; '.join(problems)}") from error


def _require_listed(field: str, allowed: tuple[str, ...] | None, name: str, value: str) -> None:
    if allowed is not None and value not in allowed:
        raise _refused(field, list(allowed), name, value)


def _require_at_most(field: str, limit: float | None, name: str, value: float) -> None:
    if limit is not None and not value <= limit:  # so that nan fails too
        raise _refused(field, limit, name, value)


def _require_at_least(field: str, limit: float | None, name: str, value: float) -> None:
    if limit is not None and not value >= limit:  # so that nan fails too
        raise _refused(field, limit, name, value)


def _hours(text: str) -> tuple[str, str]:
    """Return when work may begin, and when it must have ended; raises ValueError."""
    span = _HOURS.fullmatch(text)
    if span is None:
        raise ValueError('expected HH:MM-HH:MM in local time, as in "20:00-06:00"')
    begin, end = span.groups()  # of equal length, so that they compare as times do
    if begin == end:
        raise ValueError("ends when it begins; leave it out to allow every hour")
    return begin, end


def _offer_refused(field: str, limit: object, stated: str) -> PolicyForbids:
    return PolicyForbids(
        f"policy {field}={limit}: of the offer, {stated}; this member does not take part", field
    )


def _refused(field: str, limit: object, name: str, value: object) -> PolicyForbids:
    return PolicyForbids(
        f"policy {field}={limit}: the run file says {name}={value}; this edge does not take part",
        field,
    )
