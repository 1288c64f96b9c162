"""Makes people who were never born: train.csv (private) and public.csv (the test set)."""

import csv
import random
from pathlib import Path

HERE = Path(__file__).parent


def person(chance: random.Random) -> list[object]:
    """Age, sex, blood pressure, smoker; and whether they came back to the ward."""
    age, sex = chance.randint(18, 95), chance.choice("fm")
    pressure, smoker = round(chance.gauss(105 + 0.4 * age, 12)), chance.random() < 0.25
    risk = (age - 60) / 12 + (pressure - 130) / 15 + (1.5 if smoker else -0.5)
    outcome = "ward" if risk + chance.gauss(0, 1) > 0 else "home"
    return [age, sex, pressure, "yes" if smoker else "no", outcome]


def write(path: Path, rows: int, seed: int) -> None:
    """A CSV of so many people."""
    chance = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "sex", "pressure", "smoker", "outcome"])
        table.writerows(person(chance) for _ in range(rows))


write(HERE / "train.csv", 12_000, seed=1)
write(HERE / "public.csv", 2_000, seed=2)
