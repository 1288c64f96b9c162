"""The [model] section of a run file: one of tacit's own networks, or a user's module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tacit.config.sections import Section
from tacit.errors import ConfigError
from tacit.models import Model, Name, Normalization, build
from tacit.models.objectives import Objective
from tacit.models.user_module import UserModule

Size = Annotated[int, Field(gt=0, le=65_536)]
_OF_A_MODULE = ("entry", "arguments", "loss", "weights", "trainable", "control_flow")
_OF_BOTH = ("name", "regularization")


class ModelSection(Section):
    """The model and its layer sizes."""

    name: Literal[Name, "python"] = Field(
        description="the architecture; lstm is for text; python: your own module, see entry"
    )
    entry: str | None = Field(
        None, description='python: "module:name", a class or function that gives a torch module'
    )
    arguments: dict[str, Any] = Field({}, description="python: what the entry is called with")
    loss: str | None = Field(
        None,
        description="python: cross_entropy, mse, bce_with_logits, poisson, hazard, or "
        '"module:function" of one example; left out: by the target',
    )
    weights: str | None = Field(
        None, description="python: public weights to start from, a safetensors file"
    )
    trainable: tuple[str, ...] = Field(
        ("*",), strict=False, min_length=1, description="python: parameters that are trained"
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
        from_python = self.name == "python"
        if from_python and self.entry is None:
            raise ValueError('name=python: needs entry = "module:name"')
        fields = type(self).model_fields
        strange = [
            key
            for key, field in fields.items()
            if key not in _OF_BOTH and (key in _OF_A_MODULE) != from_python
            if getattr(self, key) != field.get_default(call_default_factory=True)
        ]
        if strange:
            if from_python:
                whose = "tacit's own networks have it"
            else:
                whose = "only python has it"
            raise ValueError(f"{strange[0]}: name={self.name} does not read it; {whose}")
        return self

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
        self, shape: tuple[int, ...], classes: int, folder: Path, objective: Objective | None = None
    ) -> Model:
        """Return the model for examples of `shape`; classes: 0 where the target has none.

        objective: what it learns of labels, counts or an event. Raises ConfigError.
        """
        if self.entry is not None:
            return self.module(folder).build(shape, classes, self.regularization, objective)
        if not classes and objective is None:
            raise ConfigError(
                f"model.name={self.name}: is for classes, and the target is a number; "
                "use python with a module of one output"
            )
        return build(
            self.name,
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
