"""Makes customers who were never born: a bank's columns and labels, and a shop's columns."""

import csv
import random
from pathlib import Path

HERE = Path(__file__).parent
BANK = ["customer", "age", "income", "debt", "late"]
SHOP = ["card", "basket", "visits", "returns", "channel"]
LABELS = ["customer", "default"]


def person(number: int, chance: random.Random) -> tuple[list[object], list[object], str]:
    """A person's row at the bank, the row at the shop, and whether they default on a loan."""
    name, trouble = f"C{number:06d}", chance.gauss(0, 1)
    age = chance.randint(18, 85)
    income = round(max(600, chance.gauss(2800 + 12 * age - 500 * trouble, 700)))
    debt = round(max(0, chance.gauss(9000 + 4000 * trouble, 4000)))
    late = min(12, max(0, round(chance.gauss(1.5 + 1.2 * trouble, 1))))
    basket = round(max(1.0, chance.gauss(45 - 12 * trouble, 12)), 2)
    visits = min(30, max(0, round(chance.gauss(8, 3))))
    returns = round(min(1.0, max(0.0, chance.gauss(0.15 + 0.1 * trouble, 0.1))), 3)
    channel = "online" if chance.random() < 0.5 + 0.15 * trouble else "store"
    default = "yes" if trouble + chance.gauss(0, 0.7) > 1 else "no"
    return [name, age, income, debt, late], [name, basket, visits, returns, channel], default


def write(suffix: str, people: range, seed: int) -> None:
    """The files of so many people: the shop lacks a tenth of them, and has others in its order."""
    chance = random.Random(seed)
    bank, shop, labels = [], [], []
    for number in people:
        at_bank, at_shop, default = person(number, chance)
        stranger = chance.random() < 0.1
        bank.append(at_bank)
        shop.append([f"S{number:06d}", *at_shop[1:]] if stranger else at_shop)
        labels.append([at_bank[0], default])
    chance.shuffle(shop)
    for name, head, rows in (
        ("bank", BANK, bank),
        ("shop", SHOP, shop),
        ("labels", LABELS, labels),
    ):
        with (HERE / f"{name}{suffix}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *rows])


write("", range(20_000), seed=1)
write("-public", range(20_000, 24_000), seed=2)
