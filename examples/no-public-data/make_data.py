"""Makes patients of five clinics who were never born: site0.csv to site4.csv, and later.csv.

The sites' files are private. later.csv has patients who come when the model is there: nothing but
the example's last step reads it.
"""

import csv
import random
from pathlib import Path

HERE = Path(__file__).parent
ROWS = (5_000, 3_900, 5_800, 4_500, 5_700)  # of each site
COLUMNS = ["age", "pressure", "smoker", "stay", "outcome"]


def patient(chance: random.Random) -> list[object]:
    """Age, blood pressure, smoker, kind of stay; and whether they came back to the ward."""
    age, smoker = chance.randint(18, 95), chance.random() < 0.25
    pressure = round(chance.gauss(105 + 0.4 * age, 12))
    stay = chance.choices(("planned", "urgent", "transfer"), (60, 30, 10))[0]
    risk = (age - 60) / 12 + (pressure - 130) / 15 + 1.5 * smoker + (stay == "urgent") - 0.6
    outcome = "ward" if risk + chance.gauss(0, 1) > 0 else "home"
    return [age, pressure, "yes" if smoker else "no", stay, outcome]


def write(name: str, rows: int, seed: int) -> None:
    """Write a CSV of so many patients."""
    chance = random.Random(seed)
    with (HERE / name).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        table.writerows(patient(chance) for _ in range(rows))


for site, rows in enumerate(ROWS):
    write(f"site{site}.csv", rows, seed=site)
write("later.csv", 3_000, seed=100)
