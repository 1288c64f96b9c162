"""Deep image networks that keep examples apart: a residual and a depthwise separable network.

Both have three stages: the first at the image's size, then twice the side halved and the channels
doubled. After them come the mean over the places, and a dense layer. Every convolution's output is
group-normalised, without parameters.

`resnet`: blocks of two 3×3 convolutions added to their input (He et al., arXiv:1512.03385). Where
the size changes, the input is thinned out and padded with zeros, their option A. `mobilenet`:
blocks of a 3×3 convolution of every channel by itself and one of all channels at one place (Howard
et al., arXiv:1704.04861). Both papers have batch normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch.nn import functional

from tacit.models.model_contract import LayerValues, Layout, Model, Window, normalized

_STAGES = 3


class _Step(NamedTuple):
    """One convolution: its name, its channels in and out, and its window."""

    name: str
    inputs: int
    outputs: int
    window: Window

    @property
    def layout(self) -> Layout:
        """Weight (out, in of one group, k, k) and bias."""
        size = self.window.kernel
        weight = (self.outputs, self.inputs // self.window.groups, size, size)
        return (f"{self.name}.weight", weight), (f"{self.name}.bias", (self.outputs,))


@dataclass(frozen=True)
class DeepModel(Model):
    """A `resnet` or a `mobilenet` of `blocks` blocks in each of three stages.

    The stages have width, 2·width and 4·width channels.
    """

    width: int = 16
    blocks: int = 1

    @cached_property
    def steps(self) -> tuple[_Step, ...]:
        """Every convolution in order: the first, then two for each block."""
        steps = [_Step("conv1", self.shape[0], self.width, Window(3, 1))]
        for stage in range(_STAGES):
            for block in range(self.blocks):
                if stage and not block:
                    stride = 2
                else:
                    stride = 1
                steps += self._block(
                    f"stage{stage + 1}block{block + 1}",
                    steps[-1].outputs,
                    self.width << stage,
                    stride,
                )
        return tuple(steps)

    def _block(self, name: str, inputs: int, outputs: int, stride: int) -> list[_Step]:
        if self.name == "resnet":
            first = _Step(f"{name}a", inputs, outputs, Window(3, 1, stride))
            return [first, _Step(f"{name}b", outputs, outputs, Window(3, 1))]
        depthwise = _Step(f"{name}a", inputs, inputs, Window(3, 1, stride, groups=inputs))
        return [depthwise, _Step(f"{name}b", inputs, outputs, Window(1, 0))]

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every parameter in the order of the flat vector."""
        convolutions = tuple(part for step in self.steps for part in step.layout)
        dense = (self.classes, self.steps[-1].outputs)
        return (*convolutions, ("dense1.weight", dense), ("dense1.bias", dense[:1]))

    @property
    def variant(self) -> str:
        """Group normalisation, which the layers do not show."""
        return "normalization[group]"

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Return every layer at work, in the order of the vector.

        A layer has its input, and what weight and bias make of it.
        """
        weights = iter(self.unflatten(params).values())
        layers: list[LayerValues] = []

        def convolved(x: torch.Tensor, step: _Step) -> torch.Tensor:
            window = step.window
            output = functional.conv2d(
                x,
                next(weights),
                next(weights),
                stride=window.stride,
                padding=window.padding,
                groups=window.groups,
            )
            layers.append(LayerValues(x, output, window))
            return normalized(output)

        x = functional.relu(convolved(x, self.steps[0]))
        for first, second in zip(self.steps[1::2], self.steps[2::2], strict=True):
            inside = convolved(functional.relu(convolved(x, first)), second)
            x = functional.relu(inside + _shortcut(x, first) if self.name == "resnet" else inside)
        x = x.mean((-2, -1))
        layers.append(LayerValues(x, functional.linear(x, next(weights), next(weights))))
        return layers


def _shortcut(x: torch.Tensor, step: _Step) -> torch.Tensor:
    """Return a block's input x as it is added to its output.

    Where the size changes: every other place of x, with channels of zeros added.
    """
    stride = step.window.stride
    return functional.pad(x[..., ::stride, ::stride], (0, 0, 0, 0, 0, step.outputs - step.inputs))
