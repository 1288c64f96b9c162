"""A public tokenizer's file: what a text becomes in whole numbers, by the file and the text alone.

The file is one of Hugging Face's `tokenizers`, in JSON. It is data: reading it runs no code of
anybody's, and it is hashed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit import regular_file
from tacit.datasets.own.tokenizer_rules import check_rules
from tacit.errors import FROM_OWN_CODE, ConfigError

MOST_BYTES = 1 << 26  # of the file
MOST_WORDS = 1 << 24  # different numbers
MOST_CHARACTERS = 256  # that are read of a text for each number that it is cut to
_PADDING = re.compile(r"\W*pad\W*", re.IGNORECASE)
# A text that most files have no words for: whether such a text can be read is tried beforehand.
_STRANGE = "a \u2203\u4e16 zzzzqx 0\u0661 \U0001f9ea"
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's file, as far as it is public and short.

    sha256: of its bytes. size: a text's numbers are below it. pad: the number that fills a short
    text up: the file's own for padding, that of its special token called pad, else 0.
    """

    path: Path
    sha256: str
    size: int
    pad: int

    def numbers(self, text: str, length: int) -> list[int] | None:
        """Return the numbers of a text, cut to `length`, not filled up; None: it cannot be read.

        A function of the file's bytes and the text alone. The tokens that the file puts around a
        text stay when it is cut. Of the text so many characters are read as `length` numbers have
        at most, MOST_CHARACTERS each. Raises ConfigError for a file that is another by now.
        """
        tokenizer = _loaded(self.path, self.sha256)
        tokenizer.enable_truncation(length)
        try:
            with _no_panic():
                numbers: list[int] = tokenizer.encode(text[: MOST_CHARACTERS * length]).ids
        except FROM_OWN_CODE:  # the library raises no narrower kind
            return None
        if max(numbers, default=0) >= self.size or len(numbers) > length:
            return None
        return numbers

    def words(self, numbers: Sequence[int]) -> str:
        """Return what the numbers stand for, as the file puts words together.

        Special tokens stay. A number that the file has no word for is passed over, and "" is for
        what the file cannot put together. Raises ConfigError for a file that is another by now.
        """
        tokenizer = _loaded(self.path, self.sha256)
        try:
            with _no_panic():
                decoded: str = tokenizer.decode(list(numbers), skip_special_tokens=False)
        except FROM_OWN_CODE:  # the library raises no narrower kind
            return ""
        return decoded

    def encoded(
        self, texts: Iterable[str | None], length: int
    ) -> tuple[_Numbers, _Numbers, npt.NDArray[np.bool_]]:
        """Return the numbers of texts (n, length), how many each has (n,), and which are unread.

        What is after a text's last number is `pad`. None is a text without a number.
        """
        every = list(texts)
        table = np.full((len(every), length), self.pad, np.int64)
        counts = np.zeros(len(every), np.int64)
        unread = np.zeros(len(every), np.bool_)
        for row, text in enumerate(every):
            numbers = [] if text is None else self.numbers(text, length)
            if numbers is None:
                unread[row] = True
                continue
            counts[row] = len(numbers)
            table[row, : len(numbers)] = numbers
        return table, counts, unread


def vocabulary(path: Path, field: str, length: int) -> Vocabulary:
    """Return what is known of the tokenizer in the file at `path`.

    length: that a text is cut to. Raises ConfigError, naming `field` and the file: without the
    package, for no such file, for one that draws at random, and where some text cannot be read.
    """
    if find_spec("tokenizers") is None:
        raise ConfigError(f"{field}: a text needs tokenizers; pip install 'tacit[text]'")
    sha256 = hashlib.sha256(_content(path, field)).hexdigest()
    return _described(path, sha256, field, length)


def digest(path: Path, field: str) -> str:
    """Return SHA-256 of the file, in hexadecimal. Raises ConfigError."""
    return hashlib.sha256(_content(path, field)).hexdigest()


@lru_cache(maxsize=8)
def _described(path: Path, sha256: str, field: str, length: int) -> Vocabulary:
    where = f"{field}: {path.name}"
    document = _document(path, where)
    if document["model"].get("dropout"):
        raise ConfigError(
            f"{where}: draws at random (model.dropout); a text must always become the same numbers"
        )
    tokenizer = _loaded(path, sha256)
    check_rules(document, where)
    around = tokenizer.num_special_tokens_to_add(False)
    if around >= length:
        raise ConfigError(
            f"{where}: puts {around} tokens around a text, which length={length} leaves no room for"
        )
    pad = _pad(document, tokenizer)
    try:
        with _no_panic():
            tokenizer.enable_truncation(length)
            tried = tokenizer.encode(_STRANGE).ids
    except FROM_OWN_CODE as error:  # the library raises no narrower kind
        raise ConfigError(
            f"{where}: cannot read every text: {_first_line(error)}; name an unknown token in it"
        ) from error
    size = 1 + max((pad, *tokenizer.get_vocab(with_added_tokens=True).values(), *tried))
    if not 2 <= size <= MOST_WORDS:
        raise ConfigError(f"{where}: has {size:,} different tokens; expected 2 to {MOST_WORDS:,}")
    return Vocabulary(path, sha256, size, pad)


@contextmanager
def _no_panic() -> Iterator[None]:
    """Raise ValueError for a panic of the library, which Python has no Exception for."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(str(error)) from error
        raise


def _content(path: Path, field: str) -> bytes:
    try:
        return regular_file.content(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{field}: {path.name}: {error.strerror or error}") from error


@lru_cache(maxsize=4)
def _loaded(path: Path, sha256: str) -> Any:
    """Return the tokenizer, without the file's own cutting and filling up. Raises ConfigError."""
    from tokenizers import Tokenizer

    content = _content(path, "data.columns")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigError(f"data.columns: {path.name}: is another file than it was")
    try:
        with _no_panic():
            tokenizer = Tokenizer.from_buffer(content)
    except ValueError as error:
        raise ConfigError(
            f"data.columns: {path.name}: is no file of tokenizers, or is damaged: "
            f"{_first_line(error)}"
        ) from error
    tokenizer.no_padding()
    return tokenizer


def _document(path: Path, where: str) -> dict[str, Any]:
    """Return the file as JSON. Raises ConfigError for what is no tokenizer's."""
    try:
        document = json.loads(_content(path, where))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no JSON ({str(error)[:80]})") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ConfigError(f"{where}: is no file of tokenizers: it has no model")
    return document


def _pad(document: dict[str, Any], tokenizer: Any) -> int:
    """Return the number that stands for padding; the tokenizer was read from the document."""
    padding = document.get("padding")
    if isinstance(padding, dict):
        return int(padding.get("pad_id", 0))
    for token in document.get("added_tokens") or []:
        if token["special"] and _PADDING.fullmatch(token["content"]):
            return int(tokenizer.token_to_id(token["content"]))
    return 0


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
