"""Makes visits of people who were never born, one to thirty of each: train.csv and public.csv."""

import csv
import random
from pathlib import Path

HERE = Path(__file__).parent


def visits(number: int, chance: random.Random) -> list[list[object]]:
    """A person's rows: id, weight, pulse, steps a day; and how the person sleeps."""
    sleeps, rows = chance.random() < 0.5, []
    for _ in range(min(30, 1 + int(chance.expovariate(0.2)))):
        weight, pulse = round(chance.gauss(75, 12)), round(chance.gauss(64 if sleeps else 76, 8))
        steps = round(abs(chance.gauss(9000 if sleeps else 5500, 2500)))
        rows.append([f"p{number}", weight, pulse, steps, "well" if sleeps else "badly"])
    return rows


def write(path: Path, people: int, seed: int) -> None:
    """A CSV of so many people's visits."""
    chance = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["person", "weight", "pulse", "steps", "sleep"])
        for number in range(people):
            table.writerows(visits(number, chance))


write(HERE / "train.csv", 3_000, seed=1)
write(HERE / "public.csv", 300, seed=2)
