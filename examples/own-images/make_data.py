"""Draws pictures of nothing in particular: train/ (private) and public/ (the test set)."""

import math
import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw

HERE = Path(__file__).parent
SIDE, FINE = 20, 4  # drawn four times as large, so that edges are smooth


def outline(shape: str, x: float, y: float, size: float, turn: float) -> list[tuple[float, float]]:
    """The corners of a shape around (x, y)."""
    corners = {"circle": 24, "square": 4, "triangle": 3}[shape]
    angles = (turn + 2 * math.pi * corner / corners for corner in range(corners))
    return [(x + size * math.cos(angle), y + size * math.sin(angle)) for angle in angles]


def picture(shape: str, chance: random.Random) -> Image.Image:
    """One shape, anywhere, of any size and grey, before a grey ground with some dust on it."""
    ground = chance.randint(0, 90)
    drawn = Image.new("L", (SIDE * FINE, SIDE * FINE), ground)
    middle = [SIDE * FINE * chance.uniform(0.4, 0.6) for _ in range(2)]
    size, turn = SIDE * FINE * chance.uniform(0.25, 0.38), chance.uniform(0, 2 * math.pi)
    corners = outline(shape, *middle, size, turn)
    ImageDraw.Draw(drawn).polygon(corners, fill=chance.randint(ground + 90, 255))
    small = drawn.resize((SIDE, SIDE), Image.Resampling.BOX)
    for _ in range(12):
        small.putpixel((chance.randrange(SIDE), chance.randrange(SIDE)), chance.randint(0, 255))
    return small


def write(folder: Path, each: int, seed: int) -> None:
    """So many pictures of each shape, in a folder of its name."""
    chance = random.Random(seed)
    for shape in ("circle", "square", "triangle"):
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            picture(shape, chance).save(folder / shape / f"{number}.png")


write(HERE / "train", int(sys.argv[1]) if sys.argv[1:] else 1_200, seed=1)
write(HERE / "public", 300, seed=2)
