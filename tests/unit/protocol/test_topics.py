"""Topics: names that cannot hold a wildcard, and what is built can be read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, WireError
from tacit.protocol import topics

steady = settings(derandomize=True, deadline=None)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
numbers = st.integers(0, 10**15 - 1)


@steady
@given(names, names, numbers, numbers)
def test_an_up_topic_is_read_back(run: str, edge: str, seq: int, part: int) -> None:
    assert topics.parse_up(topics.up(run, edge, seq, part)) == (edge, seq, part)


@steady
@given(names)
def test_a_good_name_is_returned_as_it_is(name: str) -> None:
    assert topics.checked_name("edge", name) == name


@pytest.mark.parametrize(
    "name", ["", "+", "#", "a/b", "a+", "-a", ".", "_a", "a\n", "a b", "é", "a\x00", 65 * "a"]
)
def test_a_name_that_could_be_a_wildcard_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="edge=") as refusal:
        topics.checked_name("edge", name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "tacit/v1/r/up/e/1",
        "tacit/v1/r/up/e/1/0/0",
        "tacit/v1/r/down/e/1/0",
        "tacit/v1/r/up/+/1/0",
        "tacit/v1/r/up//1/0",
        "tacit/v1/r/up/e/-1/0",
        "tacit/v1/r/up/e/1/x",
        "tacit/v1/r/up/e/1/٣",
        "tacit/v1/r/up/e/1e3/0",
        "tacit/v1/r/up/e/1/0\n",
        "tacit/v1/r/up/e\n/1/0",
        f"tacit/v1/r/up/e/{10**15}/0",
    ],
)
def test_a_topic_that_is_not_an_edges_is_refused(topic: str) -> None:
    with pytest.raises(WireError) as refusal:
        topics.parse_up(topic)
    assert refusal.value.reason == "topic"


def test_subscriptions_cover_what_is_published() -> None:
    def matches(pattern: str, topic: str) -> bool:
        pattern_parts, topic_parts = pattern.split("/"), topic.split("/")
        if pattern_parts[-1] == "#":
            pattern_parts, topic_parts = pattern_parts[:-1], topic_parts[: len(pattern_parts) - 1]
        return len(pattern_parts) == len(topic_parts) and all(
            a in ("+", b) for a, b in zip(pattern_parts, topic_parts, strict=True)
        )

    assert matches(topics.up_all("r"), topics.up("r", "e", 3, 1))
    assert matches(topics.down_all("r", "e"), topics.down("r", "e", "model", 2))
    assert matches(topics.presence_all("r"), topics.presence("r", "e"))
    assert not matches(topics.down_all("r", "e"), topics.down("r", "f", "model"))
    assert not matches(topics.up_all("r"), topics.up("s", "e", 3, 1))
    assert topics.model("r") == "tacit/v1/r/model"
