"""[data] kind = "arrays" | "images" | "python": rows that are arrays of one shape."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, FiniteFloat, Tag, field_validator, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.own_data import OwnData, check_whole_numbers
from tacit.config.sections import Section
from tacit.datasets.own.array_values import Bounds, TokensOf, Values, WholeNumbers
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.file_reading import PIXELS_MAX
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.torch_dataset import DatasetReader, OwnersReader
from tacit.errors import ConfigError
from tacit.user_code import entry_digest

MOST_INTEGERS = 1 << 31
Side = Annotated[int, Field(gt=0, le=4096)]


class BoundsSection(Section):
    """Public bounds of a number."""

    low: float = Field(allow_inf_nan=False, description="smaller numbers count as it")
    high: float = Field(allow_inf_nan=False, description="larger numbers count as it")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} is not below high={self.high:g}")
        return self

    def bounds(self) -> Bounds:
        """Return the bounds, for the reader."""
        return Bounds(self.low, self.high)


class TokensSection(Section):
    """A target of one number at each place of a row."""

    tokens: int = Field(
        ge=2,
        le=MOST_INTEGERS,
        description="y has as many places as x (the first number of shape), each 0 to tokens - 1, "
        "or -100 where nothing is learnt",
    )


def _form(value: Any) -> str:
    of_tokens = isinstance(value, TokensSection) or (isinstance(value, dict) and "tokens" in value)
    return "tokens" if of_tokens else "number"


ArrayTarget = Annotated[
    Annotated[BoundsSection, Tag("number")] | Annotated[TokensSection, Tag("tokens")],
    Discriminator(_form),
]


class ShapedData(OwnData):
    """Rows that are arrays of one shape. Its model must be one for that shape."""

    def example(self) -> tuple[int, ...]:
        """Return the shape of one row's x."""
        raise NotImplementedError

    @property
    def is_text(self) -> bool:
        """Whether a row is a list of whole numbers, each of which has a token to learn."""
        return False

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        name = run.model.name
        shape = self.example()
        if (name == "lstm" and not self.is_text) or (
            name in ("cnn", "resnet", "mobilenet") and len(shape) != 3
        ):
            if name == "lstm":
                what = "text"
            else:
                what = "images, [channels, height, width]"
            raise ValueError(f"model.name={name}: is for {what}; a row has shape {list(shape)}")


class ValuesData(ShapedData):
    """Numbers between public bounds, and a target: classes, or a number."""

    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        strict=False,
        min_length=1,
        max_length=4,
        description="of one row of x; an image: [1, 28, 28]",
    )
    low: float | None = Field(
        None, allow_inf_nan=False, description="smaller numbers of x count as it"
    )
    high: float | None = Field(
        None, allow_inf_nan=False, description="larger numbers of x count as it"
    )
    integers: int | None = Field(
        None,
        ge=2,
        le=MOST_INTEGERS,
        description="in the place of low and high: x is whole numbers from 0 to integers - 1, "
        "others are refused",
    )
    classes: int | None = Field(
        None, ge=2, le=65_536, description="of y, which is 0 to classes - 1; or say target"
    )
    target: ArrayTarget | None = Field(
        None, description="of y where it is a number, or a token at each place"
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.classes is None) == (self.target is None):
            raise ValueError("expected classes, target = { low = …, high = … } or { tokens = … }")
        self._check_bounds()
        return self

    def _check_bounds(self) -> None:
        if self.integers is not None:
            for key, value in (("low", self.low), ("high", self.high)):
                if value is not None:
                    raise ValueError(
                        f"{key}={value:g}: whole numbers have no bounds beside "
                        f"integers={self.integers}; leave {key} out"
                    )
            if self.features != "none":
                raise ValueError(f"features: are of numbers, not of integers={self.integers}")
        elif self.low is None or self.high is None:
            raise ValueError("expected low and high of x, or integers for whole numbers")
        elif not self.low < self.high:
            raise ValueError(f"low={self.low:g} is not below high={self.high:g}")

    def example(self) -> tuple[int, ...]:
        """Return `shape`."""
        return self.shape

    @property
    def is_text(self) -> bool:
        """Whether a row is a list of whole numbers, each of which has a token to learn."""
        tokens = isinstance(self.target, TokensSection)
        return tokens and self.integers is not None and len(self.shape) == 1

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if self.integers is None:
            return
        name = run.model.name
        check_whole_numbers(name, f"data.integers={self.integers}", language=self.is_text)
        if name == "lstm" and self.values().target.tokens != self.integers:
            raise ValueError(
                f"data.integers={self.integers}: lstm has the same tokens in x and y; write as "
                "many as target.tokens"
            )

    def values(self) -> Values:
        """Return the values that a row becomes."""
        goal: int | Bounds | TokensOf
        if isinstance(self.target, TokensSection):
            goal = TokensOf(self.target.tokens, self.shape[0])
        elif self.target is not None:
            goal = self.target.bounds()
        else:
            assert self.classes is not None
            goal = self.classes
        bounds: Bounds | WholeNumbers
        if self.integers is not None:
            bounds = WholeNumbers(self.integers)
        else:
            assert self.low is not None
            assert self.high is not None
            bounds = Bounds(self.low, self.high)
        return Values(self.shape, bounds, goal)


class ArraysData(ValuesData):
    """Own arrays, npz or safetensors: x, y, and whose a row is."""

    kind: Literal["arrays"] = Field(description="an own npz or safetensors file")
    x: str = Field("x", min_length=1, description="the array that is learnt from")
    y: str = Field("y", min_length=1, description="the array that is learnt")

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its arrays."""
        return ArraysReader(self.x, self.y, self.unit, self.values())

    def reader_of_owner(self, entry: str, folder: Path) -> Reader:
        """Return the reader that calls a member's own code in `folder`."""
        return OwnersReader(entry, {}, self.unit, self.values(), folder)


class PythonData(ValuesData):
    """Rows that an own function reads, as a map-style torch Dataset."""

    kind: Literal["python"] = Field(description="a file or folder that own code reads")
    entry: str = Field(
        description='"module:name": called with the path, it gives (x, y) or (x, y, unit) by number'
    )
    arguments: dict[str, Any] = Field({}, description="what the entry is called with besides")

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader that calls the code in `folder`."""
        return DatasetReader(self.entry, self.arguments, self.unit, self.values(), folder)

    @property
    def entry_of_rows(self) -> str:
        """`entry`."""
        return self.entry

    def code(self, folder: Path) -> dict[str, str]:
        """Return SHA-256 of the entry, and of what `features` name. Raises ConfigError."""
        data = {"data": entry_digest(self.entry, folder, "data.entry")}
        return data | super().code(folder)


class ImagesData(ShapedData):
    """Own pictures: a folder a class, or a table of path and label."""

    kind: Literal["images"] = Field(description="a folder a class, or a table of path and label")
    classes: tuple[str, ...] = Field(
        strict=False,
        min_length=2,
        max_length=65_536,
        description="the folders' names, or the labels, in the order of y",
    )
    size: tuple[Side, ...] = Field(
        strict=False,
        min_length=2,
        max_length=2,
        description="height and width that a picture is brought to; or one number",
    )
    channels: Literal[1, 3] = Field(description="1: grey, 3: colours")
    path: str = Field("path", min_length=1, description="of a table: the column of the files")
    label: str = Field("label", min_length=1, description="of a table: the column of the classes")
    pixels_max: int = Field(
        PIXELS_MAX,
        gt=0,
        le=100_000_000,
        description="public: a picture of more pixels is refused, by its header; they cost memory "
        "and time",
    )

    window: tuple[FiniteFloat, ...] | None = Field(
        None,
        strict=False,
        min_length=2,
        max_length=2,
        description="public, of DICOM and NIfTI: [center, width] of the values that are told apart",
    )
    slice: int | None = Field(
        None, ge=0, description="of DICOM and NIfTI: the plane, from 0; left out: the middle one"
    )

    @field_validator("size", mode="before")
    @classmethod
    def _square(cls, value: Any) -> Any:
        if isinstance(value, int):
            return (value, value)
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if len(set(self.classes)) < len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"classes: {twice!r} stands there twice")
        return self

    @model_validator(mode="after")
    def _has_a_window(self) -> Self:
        if self.window is None and self.slice is not None:
            raise ValueError(f"slice={self.slice}: needs window = [center, width]")
        if self.window is not None and self.window[1] <= 0:
            raise ValueError(f"window: its width is {self.window[1]:g}; it must be positive")
        return self

    def example(self) -> tuple[int, ...]:
        """Return (channels, height, width)."""
        return (self.channels, *self.size)

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its pictures. Raises ConfigError without Pillow."""
        if find_spec("PIL") is None:
            raise ConfigError("data.kind=images: needs Pillow; pip install 'tacit[images]'")
        from tacit.datasets.own.images import ImagesReader
        from tacit.datasets.own.scans import GreyWindow

        height, width = self.size
        if self.window is None:
            window = None
        else:
            window = GreyWindow(self.window[0], self.window[1], self.slice)
        return ImagesReader(
            (height, width),
            self.channels,
            self.classes,
            self.path,
            self.label,
            self.unit,
            self.pixels_max,
            window,
        )
