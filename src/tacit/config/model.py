"""The [model] section of a run file: one of tacit's own networks, or a user's module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tacit.config.sections import Section
from tacit.errors import ConfigError
from tacit.models import Model, Name, Normalization, build
from tacit.models.additive import ADDITIVE
from tacit.models.graph.graph_network import GraphNetwork
from tacit.models.named_network import NamedNetwork
from tacit.models.objectives import Objective
from tacit.models.user_module import UserModule
from tacit.models.zoo.linear import linear

Size = Annotated[int, Field(gt=0, le=65_536)]
# The keys that each kind of model reads; all other keys are of tacit's own networks.
_OF_KIND = {
    "python": ("entry", "arguments", "loss", "weights", "trainable", "control_flow"),
    "graph": ("file", "loss", "weights", "trainable"),
    "sums": (),
    "linear": (),
    ADDITIVE: ("bins",),
}
_OF_ALL = ("name", "regularization")


class ModelSection(Section):
    """The model and its layer sizes."""

    name: Literal[Name, "linear", "python", "graph", "sums", "additive"] = Field(
        description="the architecture; lstm is for text; linear: logistic, or one layer "
        "for a number; python: your own module, see entry; "
        "graph: a file, see file; sums: what questions are answered from, see [ask]; additive: a "
        "function of each column, see bins"
    )
    file: str | None = Field(
        None, description='graph: "NAME.graph.json", which tacit freeze has written'
    )
    entry: str | None = Field(
        None, description='python: "module:name", a class or function that gives a torch module'
    )
    arguments: dict[str, Any] = Field({}, description="python: what the entry is called with")
    loss: str | None = Field(
        None,
        description="python and graph: cross_entropy, mse, bce_with_logits, poisson, hazard, "
        'token_cross_entropy; python: also "module:function" of one example; left out: by the '
        "target",
    )
    weights: str | None = Field(
        None, description="python and graph: public weights to start from, a safetensors file"
    )
    trainable: tuple[str, ...] = Field(
        ("*",),
        strict=False,
        min_length=1,
        description="python and graph: parameters that are trained",
    )
    control_flow: Literal["refused", "trusted"] = Field(
        "refused",
        description="python: code that takes other steps for other rows (an if, a while on their "
        "numbers); trusted: it is run, and the times of pushes may tell of a row",
    )
    channels: tuple[Size, ...] = Field(  # strict=False: TOML has no tuples
        (10, 20), strict=False, min_length=1, description="of each convolution, cnn"
    )
    kernel: int = Field(5, ge=1, le=15, description="side of a convolution's window, cnn")
    pool_every: int = Field(1, ge=1, le=16, description="convolutions of a cnn before each pooling")
    hidden: tuple[Size, ...] = Field(
        (), strict=False, description="units of the dense, or LSTM, layers inside"
    )
    embedding: int = Field(64, gt=0, le=4096, description="numbers for a word, lstm")
    width: int = Field(
        16, gt=0, le=1024, description="channels of the first stage, resnet and mobilenet"
    )
    blocks: int = Field(
        1, gt=0, le=32, description="blocks of each of the three stages, resnet and mobilenet"
    )
    activation: Literal["relu", "tanh"] = Field("relu", description="cnn; tanh bounds gradients")
    bins: int = Field(
        32, ge=2, le=1024, description="additive: into which a column of numbers is cut"
    )
    regularization: float = Field(0.0, ge=0, le=1e6, description="λ of (λ/2)||x||², paper: 1e-4")
    normalization: Normalization = Field(
        "none", description="group: the convolutions' outputs, per example"
    )

    @field_validator("normalization", mode="before")
    @classmethod
    def _per_example(cls, value: Any) -> Any:
        if value == "batch":
            raise ValueError(
                "batch normalization looks across examples, so clipping bounds nobody; use group"
            )
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        needed = {"python": "entry", "graph": "file"}.get(self.name)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"name={self.name}: needs {needed}")
        fields = type(self).model_fields
        changed = [
            key
            for key, field in fields.items()
            if getattr(self, key) != field.get_default(call_default_factory=True)
        ]
        if strange := [key for key in changed if not self._reads(key)]:
            raise ValueError(
                f"{strange[0]}: name={self.name} does not read it; {_whose(strange[0])}"
            )
        return self

    def _reads(self, key: str) -> bool:
        of_some = {each for keys in _OF_KIND.values() for each in keys}
        return key in _OF_ALL or (
            key in _OF_KIND[self.name] if self.name in _OF_KIND else key not in of_some
        )

    def parts(self, folder: Path) -> NamedNetwork | None:
        """Return what a model of several files is made of, not loaded yet; None: tacit's own."""
        if self.name == "python":
            return self.module(folder)
        if self.name == "graph":
            assert self.file is not None
            return GraphNetwork(self.file, self.loss, self.weights, self.trainable, folder)
        return None

    def module(self, folder: Path) -> UserModule:
        """Return the user's module in `folder`, not loaded yet; only where there is an `entry`."""
        assert self.entry is not None
        return UserModule(
            self.entry,
            self.arguments,
            self.loss,
            self.weights,
            self.trainable,
            folder,
            self.control_flow == "trusted",
        )

    def build(
        self,
        shape: tuple[int, ...],
        classes: int,
        folder: Path,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> Model:
        """Return the model for examples of `shape`; classes: 0 where the target has none.

        objective: what it learns of labels, counts or an event. integers: where an example is whole
        numbers, their bound. Raises ConfigError.
        """
        if (parts := self.parts(folder)) is not None:
            return parts.build(shape, classes, self.regularization, objective, integers)
        if self.name == "linear" and not classes and objective is None:
            return linear(shape, self.regularization)
        if not classes and objective is None:
            raise ConfigError(
                f"model.name={self.name}: is for classes, and the target is a number; "
                "use linear, or python with a module of one output"
            )
        return build(
            "logistic" if self.name == "linear" else self.name,
            shape,
            classes,
            channels=self.channels,
            kernel=self.kernel,
            hidden=self.hidden,
            regularization=self.regularization,
            activation=self.activation,
            normalization=self.normalization,
            pool_every=self.pool_every,
            embedding=self.embedding,
            width=self.width,
            blocks=self.blocks,
            objective=objective,
        )


def _whose(key: str) -> str:
    kinds = [kind for kind, keys in _OF_KIND.items() if key in keys]
    if not kinds:
        return "tacit's own networks have it"
    return f"only {' and '.join(kinds)} {'has' if len(kinds) == 1 else 'have'} it"
