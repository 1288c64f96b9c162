"""WikiText-2 as sequences: which words, where they are cut, and which article they are of."""

from __future__ import annotations

import gzip
import math
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.datasets import (
    Text,
    all_shards,
    available,
    group_count,
    is_text,
    load,
    load_groups,
    load_labels,
    shape_of,
    train_size,
)
from tacit.datasets.benchmarks.text import wikitext2
from tacit.errors import ConfigError
from tacit.models import build, evaluate
from tacit.models.vectors import mean_gradient

ROOT = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[4] / "shared" / "data"))
FILES = ("train", "test")
LINES = (
    "",
    "= One =",
    "",
    "a b a <unk> a b",
    "= = Part = =",
    "c a",
    "",
    "= Two =",
    "",
    "= no title , it goes on",
    "d a",
)
TOY = "".join(f" {line} \n" for line in LINES)


def zipped(text: str) -> bytes:
    return gzip.compress(text.encode())


def test_words_are_numbered_by_frequency_and_the_rest_are_unknown() -> None:
    # <eos> is there 11 times, = 9, a 5, b 2, the others once; <unk> is 0 whatever its count.
    data = wikitext2(zipped(TOY), zipped(" a b <eos> z c\n"), FILES, Text(vocabulary=5, sequence=2))
    assert data.x.tolist() == [[3, 4], [0, 0]]  # a b | <eos>, z c | <eos>
    assert data.y.tolist() == [[4, 1], [0, 1]]


def test_equally_frequent_words_are_in_alphabetical_order() -> None:
    """Not in that of the text: every edge must number them alike."""
    data = wikitext2(
        zipped(" ba cab ab cab ac\n"),
        zipped(" ab ac ba cab\n"),
        FILES,
        Text(vocabulary=6, sequence=3),
    )
    assert (data.x.tolist(), data.y.tolist()) == ([[3, 4, 5]], [[4, 5, 1]])  # cab 1, <eos> 2


def test_rows_share_no_word_and_the_rest_is_left_out() -> None:
    text = Text(vocabulary=30, sequence=4)
    data = wikitext2(zipped(TOY), zipped(TOY), FILES, text)
    words = TOY.replace("\n", " <eos> ").split()
    assert len(data.x) == text.rows(len(words)) == len(words) // 5
    joined = (
        torch.cat((torch.from_numpy(data.x), torch.from_numpy(data.y[:, -1:])), 1)
        .flatten()
        .tolist()
    )
    numbers = dict(zip(words, joined, strict=False))
    assert [numbers[word] for word in words[: len(joined)]] == joined
    assert (data.x[:, 1:] == data.y[:, :-1]).all()


def test_an_article_begins_at_its_title_alone() -> None:
    data = wikitext2(zipped(TOY), zipped(TOY), FILES, Text(vocabulary=30, sequence=1))
    words = TOY.replace("\n", " <eos> ").split()
    second = words.index("Two") - 1
    assert data.groups is not None
    assert data.groups.tolist() == [int(place >= second) for place in range(0, len(words) - 1, 2)]


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(1, 12))
def test_every_word_is_in_the_vocabulary(vocabulary: int, sequence: int) -> None:
    data = wikitext2(zipped(TOY), zipped(TOY), FILES, Text(vocabulary, sequence))
    assert data.x.shape == data.y.shape
    assert data.x.shape[1] == sequence
    assert 0 <= data.x.min() <= max(data.x.max(), data.y.max()) < vocabulary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": 1}, r"data\.vocabulary = 1 must be in \[2, 33278\]"),
        ({"vocabulary": 33_279}, r"data\.vocabulary = 33279"),
        ({"sequence": 0}, r"data\.sequence = 0"),
        ({"sequence": 1001}, r"data\.sequence = 1001"),
    ],
)
def test_bad_cuts_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Text(**arguments)


def test_public_facts_of_text_depend_on_how_it_is_cut() -> None:
    text = Text(vocabulary=500, sequence=64)
    assert (shape_of("wikitext-2"), shape_of("wikitext-2", text=text)) == (
        ((32,), 2000),
        ((64,), 500),
    )
    assert (train_size("wikitext-2"), train_size("wikitext-2", text)) == (
        2_088_628 // 33,
        2_088_628 // 65,
    )
    assert (is_text("wikitext-2"), is_text("mnist"), group_count("wikitext-2")) == (
        True,
        False,
        600,
    )
    with pytest.raises(ConfigError, match=r"data\.features = 'scattering' needs square images"):
        shape_of("wikitext-2", "scattering")


def test_wikitext_is_what_the_file_says() -> None:
    if not available("wikitext-2", ROOT):
        pytest.skip(f"wikitext-2 is not in {ROOT}; set TACIT_DATA")
    text = Text(vocabulary=1000, sequence=20)
    test = load("wikitext-2", "test", ROOT, text=text)
    assert (len(test), test.x.dtype, test.classes, test.name) == (
        245_569 // 21,
        torch.int64,
        1000,
        "wikitext-2/test",
    )
    raw = gzip.decompress((ROOT / "wikitext-2" / "train.txt.gz").read_bytes()).decode()
    counts = Counter(raw.replace("\n", " <eos> ").split())
    del counts["<unk>"]
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(40), 1)}
    # <eos> = Robert <unk> = <eos> <eos> Robert <unk> is an English film ,
    beginning = [numbers.get(word) for word in ("<eos>", "=", "=", "<eos>", "<eos>", "is", ",")]
    assert test.x[0, [0, 1, 4, 5, 6, 9, 13]].tolist() == beginning
    assert test.x[0, 3] == 0
    assert torch.equal(load_labels("wikitext-2", "test", ROOT, text), test.y)
    groups = load_groups("wikitext-2", "test", ROOT, text)
    assert groups.unique(return_counts=False).tolist() == list(range(60))  # type: ignore[no-untyped-call]
    some = load("wikitext-2", "test", ROOT, torch.tensor([5, 2]), text=text)
    assert torch.equal(some.x, test.x[[5, 2]])
    parts = all_shards(groups, shards=7, method="natural", seed=1)
    assert sorted(torch.cat(parts).tolist()) == list(range(len(test)))
    for method in ("dirichlet", "shards"):
        with pytest.raises(
            ConfigError, match=rf"data\.partition = '{method}' needs one label for each row"
        ):
            all_shards(test.y, shards=7, method=method, seed=1)


def test_an_lstm_learns_from_the_text() -> None:
    """From a perplexity of 200, that of guessing, to below that of the words' own frequencies."""
    if not available("wikitext-2", ROOT):
        pytest.skip(f"wikitext-2 is not in {ROOT}; set TACIT_DATA")
    data = load("wikitext-2", "test", ROOT, text=Text(vocabulary=200, sequence=16))
    train, test = data.take(torch.arange(8000)), data.take(torch.arange(8000, 9000))
    model = build("lstm", (16,), 200, embedding=16, hidden=(32,))
    params = model.init(1).requires_grad_()
    optimizer = torch.optim.Adam([params], lr=0.02)
    generator = torch.Generator().manual_seed(1)
    frequencies = torch.bincount(train.y.flatten(), minlength=200) + 1.0
    entropy = -(frequencies / frequencies.sum()).log()[test.y].mean()
    for _ in range(150):
        rows = torch.randint(len(train), (64,), generator=generator)
        params.grad = mean_gradient(model, params, train.x[rows], train.y[rows])
        optimizer.step()
    accuracy, loss = evaluate(model, params, test)
    assert loss < float(entropy) - 0.3
    assert accuracy > 0.4
    assert math.exp(evaluate(model, torch.zeros(model.size), test)[1]) == pytest.approx(
        200, rel=1e-3
    )
