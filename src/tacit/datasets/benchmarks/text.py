"""WikiText-2 (Merity et al., arXiv:1609.07843) as sequences of words for a language model.

A row, and so the unit of a record-level guarantee, is one sequence: T words and the word after
each. Rows share no word, because each takes T + 1 of the running text. An article, the natural
group of a row, has many rows; a person whom several rows are about is not what a record-level ε
protects.

The vocabulary is the V - 1 most frequent words of the training split, and <unk> for every other. It
is taken as public: chosen in private it would need a mechanism of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tacit.datasets.benchmarks.sources import RowNumbers, Stored, unzipped
from tacit.errors import ConfigError

UNKNOWN = "<unk>"
END = "<eos>"
WORDS = 33_278  # different ones in the training split, <unk> and <eos> included


@dataclass(frozen=True, slots=True)
class Text:
    """Makes examples of running text: V words, <unk> included, in sequences of T.

    Raises ConfigError for what the corpus cannot give.
    """

    vocabulary: int = 2000
    sequence: int = 32

    def __post_init__(self) -> None:
        if not 2 <= self.vocabulary <= WORDS:
            raise ConfigError(f"data.vocabulary = {self.vocabulary} must be in [2, {WORDS}]")
        if not 1 <= self.sequence <= 1000:
            raise ConfigError(f"data.sequence = {self.sequence} must be in [1, 1000]")

    def rows(self, words: int) -> int:
        """Return how many sequences a text of `words` words gives; the rest is not used."""
        return words // (self.sequence + 1)


def wikitext2(train: bytes, part: bytes, files: tuple[str, str], text: Text) -> Stored:
    """Return the text of `part` in sequences, in words of `train`.

    x, y: int64 (n, T); y[i, t] is the word after x[i, t]. groups: the article that a sequence
    begins in.
    """
    lines = _lines(unzipped(part, files[1]))
    numbers = _vocabulary(
        lines if train == part else _lines(unzipped(train, files[0])), text.vocabulary
    )
    begins = [
        _begins(line) and len(before) == 1 and len(after) == 1
        for before, line, after in zip([[END], *lines], lines, [*lines[1:], [END]], strict=False)
    ]
    articles = np.repeat(np.cumsum(begins), [len(line) for line in lines]) - 1
    words = np.fromiter(
        (numbers.get(word, 0) for line in lines for word in line), np.int64, len(articles)
    )
    rows = text.rows(len(words))
    width = text.sequence + 1
    table = words[: rows * width].reshape(rows, width)
    groups: RowNumbers = articles[: rows * width : width].clip(min=0)  # a blank line comes first
    return Stored(table[:, :-1], table[:, 1:], groups=groups)


def _lines(content: bytes) -> list[list[str]]:
    """Return the words of every line, <eos> the last."""
    return [[*line.split(), END] for line in content.decode().splitlines()]


def _vocabulary(lines: list[list[str]], size: int) -> dict[str, int]:
    """Return {word: number}: <unk> is 0, then the most frequent words.

    Equally frequent ones are in alphabetical order.
    """
    counts = Counter(chain.from_iterable(lines))
    del counts[UNKNOWN]
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate([UNKNOWN, *ordered[: size - 1]])}


def _begins(line: list[str]) -> bool:
    """Check whether a line is the title of an article: "= title = <eos>".

    The title of a section is "= = title = = <eos>".
    """
    return len(line) > 3 and line[0] == line[-2] == "=" != line[1] and line[-3] != "="
