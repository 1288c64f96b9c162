"""Draws train/ (private) and public/ (the test set): shapes on paper that has seen better days.

Beside them base.safetensors: what a network has learnt of clean public pictures.
"""

import math
import random
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from nets import pretrained  # noqa: E402

SIDE, FINE, SHAPES = 20, 4, ("circle", "square", "triangle", "cross")


def outline(shape: str, middle: list[float], size: float, turn: float) -> list[tuple[float, float]]:
    """The corners of a shape around its middle."""
    if shape == "cross":
        arm = (1, 0.3, 0.42, 0.3) * 4
        angles = [turn + k * math.pi / 8 for k in range(16)]
        lengths = [size * (1 if k % 4 in (0, 1) else arm[k]) for k in range(16)]
    else:
        count = {"circle": 24, "square": 4, "triangle": 3}[shape]
        angles = [turn + 2 * math.pi * k / count for k in range(count)]
        lengths = [size] * count
    x, y = middle
    return [
        (x + length * math.cos(angle), y + length * math.sin(angle))
        for length, angle in zip(lengths, angles, strict=True)
    ]


def picture(shape: str, chance: random.Random, *, worn: bool) -> Image.Image:
    """One shape; worn: faint, with stains, on uneven paper."""
    drawn = Image.new("L", (SIDE * FINE, SIDE * FINE), chance.randint(0, 40))
    middle = [SIDE * FINE * chance.uniform(0.4, 0.6) for _ in range(2)]
    size, turn = SIDE * FINE * chance.uniform(0.25, 0.4), chance.uniform(0, 2 * math.pi)
    faint = chance.randint(90, 180) if worn else chance.randint(180, 255)
    ImageDraw.Draw(drawn).polygon(outline(shape, middle, size, turn), fill=faint)
    small = drawn.resize((SIDE, SIDE), Image.Resampling.BOX)
    for _ in range(40 if worn else 0):
        at = chance.randrange(SIDE), chance.randrange(SIDE)
        small.putpixel(at, chance.randint(0, 255))
    return small


def write(folder: Path, each: int, seed: int) -> None:
    """So many worn pictures of each shape, in a folder of its name."""
    chance = random.Random(seed)
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            picture(shape, chance, worn=True).save(folder / shape / f"{number}.png")


def clean(each: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Clean public pictures (n, 1, side, side), and their classes."""
    chance = random.Random(seed)
    drawn = [picture(shape, chance, worn=False) for shape in SHAPES for _ in range(each)]
    x = torch.from_numpy(np.stack([np.asarray(one) for one in drawn])[:, None] / np.float32(255))
    return x, torch.arange(len(SHAPES)).repeat_interleave(each)


torch.set_num_threads(1)
write(HERE / "train", 1_000, seed=1)
write(HERE / "public", 250, seed=2)
save_file(pretrained(*clean(600, seed=3), len(SHAPES)).state_dict(), HERE / "base.safetensors")
