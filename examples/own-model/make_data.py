"""Makes readings of no machine at all: train.csv (private) and public.csv (the test set)."""

import csv
import math
import random
from pathlib import Path

HERE = Path(__file__).parent


def reading(chance: random.Random) -> list[object]:
    """Load, speed, temperature; and how long until service, in days: what is to be learnt."""
    load, speed, temperature = chance.random(), chance.uniform(500, 3000), chance.uniform(10, 90)
    worn = 0.6 * load + 0.3 * speed / 3000 + 0.4 * math.sin(temperature / 30)
    return [f"{load:.3f}", round(speed), round(temperature), round(100 * (1.3 - worn), 1)]


def write(path: Path, rows: int, seed: int) -> None:
    """A CSV of so many readings."""
    chance = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["load", "speed", "temperature", "days"])
        table.writerows(reading(chance) for _ in range(rows))


write(HERE / "train.csv", 12_000, seed=1)
write(HERE / "public.csv", 2_000, seed=2)
