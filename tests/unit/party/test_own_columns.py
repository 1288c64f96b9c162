"""Own columns: what the files become, who is a blank, and what is refused before it costs ε."""

from __future__ import annotations

import csv
import random
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.datasets.own.own_columns import OwnColumns
from tacit.errors import BudgetSpent, ConfigError, DataError
from tacit.privacy.accounting import gdp
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.protocol.messages import EVERYONE, Halt
from tacit.protocol.vertical import Embed, Roster
from tacit.simulation.client_server import received

SALT = b"a secret of the parties"
PEOPLE, TESTED = 400, 100
RUN = """
run = { updates = 60 }
model.name = "logistic"
edges.count = 2
privacy = { mechanism = "gaussian", epsilon = 8.0, batch = 100 }
evaluation = { every = 60 }
[algorithm]
name = "vafl"
embedding = "columns"
combine = "concat"
width = 4
[data]
kind = "columns"
labels = "labels.csv"
labels_test = "labels-public.csv"
key = "id"
target = "paid"
values = ["no", "yes"]
rows = 400
[[data.parties]]
name = "bank"
train = "bank.csv"
test = "bank-public.csv"
key = "id"
columns = { age = { low = 0, high = 100 }, debt = { low = 0, high = 10, center = 5, scale = 2 } }
[[data.parties]]
name = "shop"
train = "shop.csv"
test = "shop-public.csv"
key = "card"
columns = { basket = { low = 0, high = 50 }, way = { values = ["web", "store"], missing = "other" } }
"""


def written(path: Path, head: list[str], rows: list[Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of files, where the shop lacks person 0 and knows a stranger."""
    chance = random.Random(1)
    for suffix, people in (("", range(PEOPLE)), ("-public", range(PEOPLE, PEOPLE + TESTED))):
        paid = [chance.random() < 0.5 for _ in people]
        bank = [
            [n, chance.randint(20, 90), round(8 - 6 * yes + chance.random(), 2)]
            for n, yes in zip(people, paid, strict=True)
        ]
        shop = [
            [n or "stranger", round(40 * yes + 5 * chance.random(), 1), chance.choice(["web", ""])]
            for n, yes in zip(people, paid, strict=True)
        ]
        chance.shuffle(shop)
        written(tmp_path / f"bank{suffix}.csv", ["id", "age", "debt"], bank)
        written(tmp_path / f"shop{suffix}.csv", ["card", "basket", "way"], shop)
        labels = [[n, "yes" if yes else "no"] for n, yes in zip(people, paid, strict=True)]
        written(tmp_path / f"labels{suffix}.csv", ["id", "paid"], labels)
    return tmp_path


def parsed(folder: Path, old: str = "", new: str = "") -> RunFile:
    assert old in RUN
    return config.parse(RUN.replace(old, new) if old else RUN, "run.toml", folder=folder)


def party(
    definition: Definition[Any], number: int, salt: bytes = SALT, ledger: Ledger | None = None
) -> Party:
    ledger = ledger or Ledger(":memory:", f"{number}")
    name = f"edge-{number}"
    return vafl_algorithm.own_party(vertical(definition), name, number, salt, ledger, Random())


def test_a_persons_epsilon_is_shared_by_the_parties_who_pay_once(folder: Path) -> None:
    definition = parsed(folder).define()
    server = trained(definition, [party(definition, number) for number in range(2)])
    spent = [gdp.mu(server.edges[name].spent) for name in ("edge-0", "edge-1")]
    assert gdp.epsilon(gdp.compose(spent), 1e-5) == pytest.approx(8.0, rel=1e-4)
    assert definition.plans.epsilon(0) < 8.0
    assert server.version == 60


def trained(definition: Definition[Any], parties: list[Party]) -> LabelServer:
    """Return the label holder at the end of a run of these parties, whose messages come in turn."""
    source = definition.source
    assert isinstance(source, OwnColumns)
    records = vafl_algorithm.own_records(source, SALT)
    server = registry.server(definition, definition.build_model(), records)
    assert isinstance(server, LabelServer)
    by_name = {role.edge: role for role in parties}
    waiting = deque(out.message for role in parties for out in role.start())
    while waiting and not server.halted:
        for out in server.on_message(received(waiting.popleft())):
            for name in by_name if out.to == EVERYONE else [out.to]:
                if not isinstance(out.message, Halt):
                    waiting += [
                        said.message
                        for said in by_name[name].on_message(out.message)  # type: ignore[arg-type]
                    ]
    return server


def test_rows_are_joined_by_id_in_whatever_order_and_test_people_are_sent_as_they_are(
    folder: Path,
) -> None:
    definition = parsed(folder).define()
    server = trained(definition, [party(definition, number) for number in range(2)])
    text = (folder / "bank-public.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    table = server.table[PEOPLE:, server.place("edge-0")]
    debts = torch.tensor([(float(row[2]) - 5) / 2 for row in rows]) / 2**0.5
    ages = torch.tensor([2 * float(row[1]) / 100 - 1 for row in rows]) / 2**0.5
    exact = torch.stack([ages, debts], 1)
    cut = exact * (1 / exact.norm(dim=1)).clamp(max=1.0)[:, None]
    assert torch.allclose(table[:, :2], cut, atol=1e-4)
    assert not table[:, 2:].any()  # the bank's row is narrower than the shop's
    noise = server.table[:PEOPLE, server.place("edge-0"), 2:].std()
    assert noise == pytest.approx(vertical(definition).plan(0).std, rel=0.2)


def test_whom_a_party_lacks_is_a_blank_that_is_hidden_like_everybody(folder: Path) -> None:
    shop = party(parsed(folder).define(), 1)
    bank = party(parsed(folder).define(), 0)
    names = [*bank._names]
    (out,) = shop.on_message(Roster(bank._names, PEOPLE))
    assert isinstance(out.message, Embed)
    assert out.message.released is not None
    assert len(out.message.released.vectors) == len(names) == PEOPLE + TESTED
    assert shop.place is not None
    assert int(shop.place[0]) == -1
    assert out.message.released.vectors[0].abs().min() > 0
    assert not shop._embed(shop.theta, torch.tensor([0])).any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("width = 4", "width = 9", "algorithm.width=9: the widest party's columns take 4 places"),
        ("edges.count = 2", "edges.count = 3", "edges.count=3: data.parties has 2"),
        ('embedding = "columns"', "", "own columns need embedding"),
        ('combine = "concat"', "", 'needs combine = "concat"'),
        ('name = "vafl"', 'name = "vafl"\nmode = "fresh"', "is for cached"),
        ("batch = 100", "batch = 100, pushes = 2", "a person's columns are released once"),
        ('name = "shop"', 'name = "bank"', "parties: name 'bank' stands there twice"),
        ('key = "card"', 'key = "way"', "columns.way: is the key"),
        ("edges.count = 2", "edges = { count = 2, epsilon = [1.0] }", "edges.epsilon"),
    ],
)
def test_what_cannot_work_is_refused(folder: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        parsed(folder, old, new)


def test_an_id_of_two_rows_or_of_both_files_is_refused(folder: Path) -> None:
    definition = parsed(folder).define()
    with (folder / "bank.csv").open("a", encoding="utf-8") as file:
        file.write("7,30,5\n")
    with pytest.raises(DataError, match=r"bank\.csv: column 'id': 1 rows repeat an id"):
        party(definition, 0)
    with (folder / "shop.csv").open("a", encoding="utf-8") as file:
        file.write(f"{PEOPLE},30,web\n")
    with pytest.raises(DataError, match=r"shop\.csv and shop-public\.csv: column 'card': 1 rows"):
        party(definition, 1)


def test_another_secret_or_other_people_are_refused_before_anything_is_paid(folder: Path) -> None:
    definition = parsed(folder).define()
    stranger = party(definition, 0, b"another secret")
    roster = Roster(party(definition, 1)._names, PEOPLE)
    with pytest.raises(DataError, match="its key column has other ids, or TACIT_SALT is not"):
        stranger.on_message(roster)
    assert stranger.releaser.ledger.charged().count == 0


def test_a_check_says_whom_a_party_lacks_and_refuses_one_that_has_nobody(folder: Path) -> None:
    source = parsed(folder).define().source
    assert source.remarks() == [
        "shop.csv: lacks 1 of the 400 people of labels.csv, who are blanks there"
    ]
    written(folder / "shop.csv", ["card", "basket", "way"], [["A1", 3, "web"], ["A2", 3, "web"]])
    with pytest.raises(DataError, match=r"shop\.csv: column 'card': none of the 400 people of"):
        source.remarks()


def test_a_label_that_is_no_value_of_the_target_is_refused(folder: Path) -> None:
    with (folder / "labels.csv").open("a", encoding="utf-8") as file:
        file.write("9999,perhaps\n")
    source = parsed(folder).define().source
    assert isinstance(source, OwnColumns)
    with pytest.raises(DataError, match="1 rows have none of the target's values, no, yes"):
        source.labelled()


def test_a_second_release_is_not_paid_for(folder: Path) -> None:
    definition = parsed(folder).define()
    with closing(Ledger(":memory:", "bank")) as ledger:
        bank = party(definition, 0, ledger=ledger)
        everybody = torch.arange(PEOPLE)
        bank.releaser.hold(PEOPLE)
        bank.releaser.release(everybody, lambda: torch.zeros(PEOPLE, 4))
        with pytest.raises(BudgetSpent):
            bank.releaser.release(everybody, lambda: torch.zeros(PEOPLE, 4))
        assert vertical(definition).plan(0).releases_left(ledger.history()) == 0


def test_the_same_people_at_two_parties_have_two_ledgers(folder: Path) -> None:
    source = parsed(folder).define().source
    units = []
    for number in range(2):
        marks = source.owned(number).marks  # type: ignore[union-attr]
        assert marks is not None
        (of_file,) = marks()
        units.append({unit.tobytes() for unit in of_file.units})  # type: ignore[union-attr]
    assert len(units[0]) == len(units[1]) == PEOPLE
    assert not units[0] & units[1]
