"""Makes patients of five wards who were never born: ward0.csv to ward4.csv, all private."""

import csv
import random
from pathlib import Path

HERE = Path(__file__).parent
ROWS = (900, 2_600, 1_400, 3_300, 1_800)  # of each ward
WARDS = ("surgery", "medicine", "children", "eyes", "heart")


def patient(ward: int, chance: random.Random) -> list[object]:
    """Age, which is not always known; days in the ward; kind of insurance."""
    age = max(0, round(chance.gauss(9 if WARDS[ward] == "children" else 61, 6 + 2 * ward)))
    days = max(1, round(chance.gammavariate(2, 1.5 + age / 40)))
    insurance = chance.choices(("public", "private", "none"), (80, 15, 5))[0]
    return ["" if chance.random() < 0.08 else age, days, insurance]


for ward, rows in enumerate(ROWS):
    chance = random.Random(ward)
    with (HERE / f"ward{ward}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "days", "insurance"])
        table.writerows(patient(ward, chance) for _ in range(rows))
