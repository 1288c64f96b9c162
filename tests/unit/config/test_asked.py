"""A run file with questions: what follows from [ask], and what is refused before it costs ε."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit import config
from tacit.config.asked_table import AskedTable
from tacit.config.run_file import as_tree, read
from tacit.errors import ConfigError

FILE = """
data.kind = "table"
data.train = "people.csv"
data.rows = 2000
data.columns.age = { low = 0, high = 100 }
data.columns.sex = { values = ["F", "M"] }
edges.count = 3
privacy.epsilon = 0.5
ask.questions = ["count", "mean age", "counts by sex", "quantile income 0.5"]
"""


def test_the_questions_alone_make_a_run() -> None:
    run = config.parse(FILE, "test")
    plan = run.plan(0)
    assert (run.algorithm.name, run.model.name, run.run.updates) == ("ask", "sums", 3)
    assert (plan.sampling_rate, plan.batch, run.privacy.clip) == (1.0, 2000.0, 1.0)
    assert plan.pushes_left(()) == 1
    assert run.define().build_model().size == 1 + 2 + 4 + 256


def test_of_values_that_are_not_public_the_spelling_is_counted() -> None:
    run = config.parse(FILE.replace("by sex", "by job"), "test")
    assert run.define().build_model().size == 1 + 2 + (1 + 32 * 56 * 16) + 256


def test_its_tree_reads_as_the_same_run(tmp_path: Path) -> None:
    run = config.parse(FILE.replace('data.train = "people.csv"\n', ""), "test", federation=True)
    again = read(as_tree(run), "offer", tmp_path, site=None, own_code=False)
    assert again.ask == run.ask
    assert again.fingerprint() == run.fingerprint()


def test_a_weight_moves_noise_from_question_to_question() -> None:
    weighed = FILE + "ask.weights = [1, 9, 1, 1]\n"
    run = config.parse(weighed, "test")
    assert isinstance(run.data, AskedTable)
    assert run.ask is not None
    count, mean, *_ = run.data.question_sheet(run.ask).asked
    assert mean.scale == pytest.approx(3 * count.scale)


@pytest.mark.parametrize(
    ("text", "changed"),
    [('"mean age"', '"std age"'), ("ask.questions", "ask.weights = [1, 2, 1, 1]\nask.questions")],
)
def test_other_questions_and_other_weights_are_another_run(text: str, changed: str) -> None:
    other = config.parse(FILE.replace(text, changed), "test")
    assert other.fingerprint() != config.parse(FILE, "test").fingerprint()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("mean age", "mean income"), "'income' has no public bounds; ask for its quantiles first"),
        (("counts by sex", "crosstab sex job"), '"counts by job" first, or state'),
        (("counts by sex", "crosstab sex age"), "'age' is a number, as data.columns.age has low"),
        (("mean age", "mean sex"), """values; ask "counts by sex", or state low and high"""),
        (('"count"', '"mode age"'), "question 'mode age': expected count, missing"),
        (("edges.count", "privacy.batch = 100\nedges.count"), "every row is read, once"),
        (("edges.count", "privacy.clip = 2.0\nedges.count"), "a row counts as 1 at most"),
        (("edges.count", "privacy.noise_multiplier = 9.0\nedges.count"), "follows from"),
        (("edges.count", 'privacy.mechanism = "knorm"\nedges.count'), "that of a Gaussian's noise"),
        (("edges.count", 'privacy.mechanism = "none"\nedges.count'), "that of a Gaussian's noise"),
        (("edges.count", 'data.test = "t.csv"\nedges.count'), "nothing is tested"),
        (("edges.count", 'data.target = "sex"\nedges.count'), "data.target"),
        (("ask.questions", "ask.weights = [1.0]\nask.questions"), "weights: 1 for 4 questions"),
        (("edges.count", 'algorithm.name = "mapa"\nedges.count'), "algorithm.name"),
        (
            ("ask.questions", "ask.weights = [1e-300, 1.0, 1, 1]\nask.questions"),
            "1 is more than 1,000,000 times 1e-300",
        ),
        (
            ("ask.questions", "ask.weights = [1e308, 1e308, 1e308, 1e308]\nask.questions"),
            r"1e\+308 is too large",
        ),
        (('"count"', '"histogram age 0 5e-324 10"'), "0.0 to 5e-324 is too narrow for 10 cells"),
        (('"count"', '"histogram age -1e308 1e308 10"'), r"-1e\+308 to 1e\+308 is too wide"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(change: tuple[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        config.parse(FILE.replace(*change), "test")
    assert "\n" not in str(refusal.value)


def test_a_table_without_target_is_for_questions_alone() -> None:
    text = FILE.replace("ask.questions", "#").replace("edges", "run.updates = 9\nedges")
    text += 'algorithm.name = "mapa"\nmodel.name = "logistic"\n'
    with pytest.raises(ConfigError, match=r"data.target: missing"):
        config.parse(text, "test")
