"""Makes customers who never were: train.csv (private), public.csv (the test set), new.csv."""

import csv
import math
import random
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ["age", "income", "used", "late", "housing", "outcome"]


def customer(chance: random.Random) -> list[object]:
    """Age, income, use of the credit line, late payments, housing; and whether they defaulted."""
    age = chance.randint(18, 90)
    income = round(min(20_000, max(500, chance.lognormvariate(8.0, 0.6))))
    used, late = round(chance.betavariate(1.2, 1.6), 3), min(10, int(chance.expovariate(0.8)))
    housing = chance.choices(["owns", "rents", "family"], [0.5, 0.4, 0.1])[0]
    risk = 0.002 * (age - 48) ** 2 - 1.2 - 1.5 * math.log(income / 3000)
    risk += (5.0 * used - 1.5) * (used > 0.3) + 1.4 * min(late, 3) - 2.5
    risk += 0.8 if housing == "rents" else 0.0
    outcome = "defaults" if risk + chance.gauss(0, 1) > 0 else "pays"
    return [age, income, used, late, housing, outcome]


def write(path: Path, rows: int, seed: int) -> None:
    """A CSV of so many customers."""
    chance = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        table.writerows(customer(chance) for _ in range(rows))


write(HERE / "train.csv", 12_000, seed=1)
write(HERE / "public.csv", 2_000, seed=2)
write(HERE / "new.csv", 20, seed=3)
