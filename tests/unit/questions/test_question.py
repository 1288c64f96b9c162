"""Questions as people write them, and what is said of one that cannot be read."""

from __future__ import annotations

import pytest

from tacit.errors import ConfigError
from tacit.questions.question import parse


@pytest.mark.parametrize(
    ("text", "kind", "columns", "numbers"),
    [
        ("count", "count", (), ()),
        ("missing age", "missing", ("age",), ()),
        ("histogram age 0 110 22", "histogram", ("age",), (0.0, 110.0, 22.0)),
        ("quantile age 0.01 0.5 0.99", "quantile", ("age",), (0.01, 0.5, 0.99)),
        ("mean income", "mean", ("income",), ()),
        ("std income", "std", ("income",), ()),
        ("counts by sex", "counts", ("sex",), ()),
        ("crosstab sex outcome", "crosstab", ("sex", "outcome"), ()),
        ("correlation age 'net income'", "correlation", ("age", "net income"), ()),
    ],
)
def test_each_kind_is_read(
    text: str, kind: str, columns: tuple[str, ...], numbers: tuple[float, ...]
) -> None:
    question = parse(text)
    assert (question.kind, question.columns, question.numbers) == (kind, columns, numbers)
    assert question.text == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a question"),
        ("mode age", "expected count, missing"),
        ("counting", "std, counts by, crosstab or correlation"),
        ("count age", "expected count"),
        ("mean", "expected mean COLUMN"),
        ("counts sex", "expected counts by COLUMN"),
        ("crosstab sex sex", "the two columns are the same"),
        ("histogram age 0 110", "expected histogram COLUMN LOW HIGH CELLS"),
        ("histogram age 110 0 22", "LOW=110 is not below HIGH=0"),
        ("histogram age 0 110 2.5", "CELLS=2.5: expected a whole number"),
        ("histogram age 0 110 2000", "from 1 to 1,000"),
        ("histogram age 0 inf 22", "a number is not finite"),
        ("histogram age a b c", "expected histogram"),
        ("quantile age", "expected quantile COLUMN P"),
        ("quantile age 0.5 0.2", "the shares P must ascend"),
        ("quantile age 1", "P=1: expected a share between 0 and 1"),
        ("mean 'age", "expected a question"),
        (f"quantile age {' '.join(f'{n / 2000}' for n in range(1, 1002))}", "at most 1,000"),
    ],
)
def test_another_is_refused_in_a_line_that_says_how_it_is_written(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", r"\(")) as refusal:
        parse(text)
    assert "\n" not in str(refusal.value)
