"""A text as data: what a public tokenizer's file makes of it, and which files are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from tacit import config
from tacit.datasets.own import vocabulary as of_file
from tacit.datasets.own.rows import EncodedRows, RowError
from tacit.datasets.own.rows_file import rows_of
from tacit.datasets.own.schema import Category, NextTokenGoal, TableSchema, Tokenized
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.vocabulary import MOST_CHARACTERS, vocabulary
from tacit.datasets.target import NOT_LEARNT
from tacit.errors import ConfigError, OwnersError
from tests.helpers import own_texts
from tests.helpers.own_texts import NUMBERS, enclosed

OUTCOME = Category("outcome", ("home", "ward"))
NOTES = ["the patient is calm", "Fever and PAIN", "unheard", "the the the the the the the the"]
PYTHON = 'name = "python"\nentry = "nets:Classifier"\narguments = { words = 20 }'


def numbers(*words: str) -> list[int]:
    return [NUMBERS[word] for word in words]


def column(folder: Path, length: int = 6, **changed: Any) -> Tokenized:
    path = own_texts.vocabulary(folder, **changed)
    return Tokenized("note", vocabulary(path, "note", length), length)


def table(path: Path, texts: list[Any] = NOTES) -> Path:
    cells = pa.table({"note": pa.array(texts, pa.string()), "outcome": ["home"] * len(texts)})
    csv.write_csv(cells, path) if path.suffix == ".csv" else parquet.write_table(cells, path)
    return path


def read(path: Path, schema: TableSchema) -> EncodedRows:
    [rows] = TableReader(schema).read(path)
    return rows


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_text_is_cut_and_filled_up_to_its_length(tmp_path: Path, name: str) -> None:
    schema = TableSchema((column(tmp_path),), OUTCOME)
    rows = rows_of(table(tmp_path / name), TableReader(schema), tmp_path / "kept")
    assert rows.x.dtype == torch.int64
    assert rows.x.tolist() == [
        [*numbers("the", "patient", "is", "calm"), 0, 0],
        [*numbers("fever", "and", "pain"), 0, 0, 0],
        [*numbers("[UNK]"), 0, 0, 0, 0, 0],
        numbers("the") * 6,
        [0] * 6,  # the public row
    ]
    assert TableReader(schema).integers == len(NUMBERS)


def test_the_tokens_around_a_text_stay_when_it_is_cut(tmp_path: Path) -> None:
    schema = TableSchema((column(tmp_path, 4, post_processor=enclosed()),), OUTCOME)
    rows = read(table(tmp_path / "t.csv"), schema)
    assert rows.x[0].tolist() == numbers("[CLS]", "the", "patient", "[SEP]")
    assert rows.x[2].tolist() == [*numbers("[CLS]", "[UNK]", "[SEP]"), 0]


def moved(pad: str) -> list[dict[str, Any]]:
    """Return special tokens without [PAD], and with `pad`, which becomes number 20."""
    first, *others = own_texts.tokenizer()["added_tokens"]
    return [*others, {**first, "id": 20, "content": pad}]


@pytest.mark.parametrize(
    ("changed", "pad"),
    [
        ({}, 0),
        ({"added_tokens": moved("<pad>")}, 20),
        ({"added_tokens": moved("<|PAD|>")}, 20),
        ({"added_tokens": own_texts.tokenizer()["added_tokens"][1:]}, 0),
        ({"added_tokens": []}, 0),
        (
            {
                "padding": {
                    "strategy": {"Fixed": 99}, "direction": "Left", "pad_to_multiple_of": None,
                    "pad_id": 7, "pad_type_id": 0, "pad_token": "[PAD]",
                }
            },
            7,
        ),
    ],
)  # fmt: skip
def test_padding_is_the_files_own_or_0(tmp_path: Path, changed: dict[str, Any], pad: int) -> None:
    text = column(tmp_path, **changed)
    rows = read(table(tmp_path / "t.csv"), TableSchema((text,), OUTCOME))
    assert rows.x[1].tolist() == [*numbers("fever", "and", "pain"), pad, pad, pad]
    assert text.vocabulary.pad == pad
    assert text.vocabulary.size == max(20, pad + 1)


def test_a_row_is_a_function_of_itself_alone(tmp_path: Path) -> None:
    schema = TableSchema((column(tmp_path),), OUTCOME)
    together = read(table(tmp_path / "t.csv"), schema)
    for row, text in enumerate(NOTES):
        alone = read(table(tmp_path / "one.csv", [text]), schema)
        assert alone.x.tolist() == together.x[row : row + 1].tolist()


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_the_next_token_is_learnt_up_to_the_last(tmp_path: Path, name: str) -> None:
    text = column(tmp_path, 3)
    schema = TableSchema((text,), NextTokenGoal(text))
    rows = rows_of(table(tmp_path / name), TableReader(schema), tmp_path / "kept")
    none = NOT_LEARNT
    assert rows.x[:3].tolist() == [
        numbers("the", "patient", "is"),
        numbers("fever", "and", "pain"),
        [*numbers("[UNK]"), 0, 0],
    ]
    assert rows.y.tolist() == [
        numbers("patient", "is", "calm"),
        [*numbers("and", "pain"), none],
        [none] * 3,
        numbers("the") * 3,
        [0] * 3,
    ]
    target = TableReader(schema).target
    assert (target.kind, target.tokens, target.length, target.outputs) == ("tokens", 20, 3, 20)
    [inputs] = TableReader(schema).inputs(tmp_path / name)
    assert inputs.tolist() == rows.x[:-1].tolist()


@pytest.mark.parametrize("cell", [None, "", "NA", "  "])
def test_a_missing_text_is_refused_or_is_padding_alone(tmp_path: Path, cell: str | None) -> None:
    text = column(tmp_path, post_processor=enclosed())
    path = table(tmp_path / "t.parquet", ["calm", cell])
    with pytest.raises(RowError, match=r"column 'note' \(text\): a missing value"):
        read(path, TableSchema((text,), OUTCOME))
    other = Tokenized("note", text.vocabulary, 6, "other")
    rows = read(path, TableSchema((other,), OUTCOME))
    assert rows.x.tolist() == [[*numbers("[CLS]", "calm", "[SEP]"), 0, 0, 0], [0] * 6]
    language = read(path, TableSchema((other,), NextTokenGoal(other)))
    assert language.y[1].tolist() == [NOT_LEARNT] * 6


def test_rows_without_a_text_are_said_before_they_cost_anything(tmp_path: Path) -> None:
    text = column(tmp_path)
    schema = TableSchema((Tokenized("note", text.vocabulary, 6, "other"),), OUTCOME)
    path = table(tmp_path / "t.parquet", [None, "calm"] * 20)
    [remark] = TableReader(schema).remarks(path)
    assert remark == "column 'note': 50% of the rows have no value"
    with pytest.raises(OwnersError, match="nearly all rows have no value"):
        list(TableReader(schema).remarks(table(tmp_path / "none.parquet", [None] * 40)))


def test_a_schema_is_called_by_the_files_bytes_and_not_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = TableSchema((column(tmp_path / "one"),), OUTCOME)
    same = TableSchema((column(tmp_path / "two"),), OUTCOME)
    assert one.digest() == same.digest()
    other = TableSchema((column(tmp_path / "two", normalizer=None),), OUTCOME)
    longer = TableSchema((column(tmp_path / "one", 7),), OUTCOME)
    language = TableSchema((one.text,), NextTokenGoal(one.text))  # type: ignore[arg-type]
    digests = {each.digest() for each in (one, other, longer, language)}
    assert len(digests) == 4


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


BAD_FILES: dict[str, tuple[Any, str]] = {
    "empty": (b"", "vocabulary.json: is no JSON"),
    "half": (json.dumps(own_texts.tokenizer()).encode()[:300], "vocabulary.json: is no JSON"),
    "deep": (b"[" * 100_000, "vocabulary.json: is no JSON"),
    "no text": (b"\xff\xfe\x00", "vocabulary.json: is no JSON"),
    "a list": (b"[1]", "is no file of tokenizers: it has no model"),
    "words alone": (b'{"the": 1}', "is no file of tokenizers: it has no model"),
    "no such model": ({"model": {"type": "Oracle"}}, "is no file of tokenizers, or is damaged"),
    "below 0": (
        {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}},
        "is no file of tokenizers, or is damaged",
    ),
    "merges of nothing": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}},
        "is no file of tokenizers, or is damaged",
    ),
    "a panic": (  # no Exception in Python
        {
            "model": {
                "type": "BPE",
                "vocab": {"a": 0, "b": 1, "ab": 2},
                "merges": ["a b"],
                "continuing_subword_prefix": "#####",
            }
        },
        "is no file of tokenizers, or is damaged",
    ),
    "a bad pattern": ({"pre_tokenizer": split("((")}, "is no file of tokenizers, or is damaged"),
    "no unknown": (
        {"model": {"type": "WordLevel", "vocab": NUMBERS, "unk_token": "[GONE]"}},
        "cannot read every text: WordLevel error",
    ),
    "chance": (
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}},
        "draws at random (model.dropout)",
    ),
    "far numbers": (
        {"model": {"type": "WordLevel", "vocab": {"a": 1 << 30}, "unk_token": "a"}},
        "has 1,073,741,825 different tokens; expected 2 to 16,777,216",
    ),
    "all room taken": ({"post_processor": enclosed()}, "puts 2 tokens around a text, which length"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_is_no_tokenizers_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, message = BAD_FILES[name]
    if isinstance(content, bytes):
        path = tmp_path / "vocabulary.json"
        path.write_bytes(content)
    else:
        path = own_texts.vocabulary(tmp_path, **content)
    with pytest.raises(ConfigError) as refused:
        vocabulary(path, "data.columns.note.text", 2)
    assert message in str(refused.value)
    assert "data.columns" in str(refused.value)
    assert "\n" not in str(refused.value)


def grows(times: int, count: int) -> dict[str, Any]:
    """Return rules of which each lets a letter grow so many times."""
    rule = {"type": "Replace", "pattern": {"String": "q"}, "content": "q" * times}
    return {"type": "Sequence", "normalizers": [rule] * count}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"normalizer": grows(10, 12)}, "normalizer: Replace lets a text grow more than 64 times"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 99}}, "Prepend lets a text grow"),
        ({"pre_tokenizer": split("(x+x+)+y")}, "has a loop or a choice in a loop"),
        ({"pre_tokenizer": split("(ab|a)*c")}, "has a loop or a choice in a loop"),
        ({"pre_tokenizer": split(r"(a+)b\1")}, "refers to what it has read"),
        ({"pre_tokenizer": split(r"(?<n>a\g<n>?b)")}, "is not of a form that tacit can judge"),
    ],
)
def test_a_rule_that_a_text_could_hold_up_a_site_with_is_refused(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        column(tmp_path, **changed)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        r"[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lo}]+(?i:'s|'t)?|\p{N}{1,3}|\s+",
        r"<\|startoftext\|>|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    ],
)
def test_the_regular_expressions_of_well_known_tokenizers_are_read(
    tmp_path: Path, pattern: str
) -> None:
    assert column(tmp_path, pre_tokenizer=split(pattern)).vocabulary.numbers("pain", 6)


def test_of_a_long_text_no_more_is_read_than_its_numbers_need(tmp_path: Path) -> None:
    words = column(tmp_path, length=6).vocabulary
    long = "pain " * 100_000
    assert words.numbers(long, 6) == numbers(*["pain"] * 6)
    assert words.numbers(" " * (6 * MOST_CHARACTERS) + "pain", 6) == []


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_file, "MOST_BYTES", 100)
    with pytest.raises(ConfigError, match=r"note: vocabulary\.json: has more than 100 bytes"):
        vocabulary(own_texts.vocabulary(tmp_path), "note", 4)


def test_without_the_package_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_file, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs tokenizers; pip install 'tacit\[text\]'"):
        vocabulary(own_texts.vocabulary(tmp_path), "note", 4)


def test_a_file_that_changes_under_a_run_is_refused(tmp_path: Path) -> None:
    text = column(tmp_path, normalizer=None)
    own_texts.vocabulary(tmp_path, normalizer={"type": "NFC"})
    of_file._loaded.cache_clear()
    with pytest.raises(ConfigError, match="is another file than it was"):
        text.vocabulary.numbers("calm", 4)


def test_the_files_hash_is_in_the_run_definition(tmp_path: Path) -> None:
    own_texts.vocabulary(tmp_path)
    run = config.load(own_texts.run_file(tmp_path, '"outcome"', PYTHON))
    assert run.stated()["code"].keys() == {"entry", "text note"}
    assert [str(path) for path in run.data.files(tmp_path)] == ["vocabulary.json"]
    before = run.fingerprint()
    own_texts.vocabulary(tmp_path, normalizer=None)
    assert run.fingerprint() != before
    assert run.build_model().random_batch(9, torch.Generator())[0].max() < 20


@pytest.mark.parametrize(
    ("target", "columns", "message"),
    [
        ('"outcome"', {"age": "{ low = 0, high = 9 }"}, "columns.note: a text is whole numbers, whi"),
        ('"outcome"', {"more": '{ text = "vocabulary.json", length = 3 }'}, "leave out more"),
        ('"note"', {}, "columns.note: a target is a number, or has values"),
        ('"outcome"', {"note": '{ text = "vocabulary.json" }'}, "text and length: one needs the other"),
        ('"outcome"', {"note": "{ low = 0, high = 1, length = 3 }"}, "text and length: one needs"),
        ('"outcome"', {"note": '{ text = "gone.json", length = 3 }'}, "no such file in"),
        ('"outcome"', {"note": '{ text = "../v.json", length = 3 }'}, "leaves the run file's folder"),
        ('"outcome"', {"note": '{ text = "v.json", length = 3, missing = 2 }'}, "missing=2: is for num"),
        ('"outcome"', {"note": '{ text = "v.json", length = 3, log = true }'}, "are for a number"),
        ('{ next_token = "age" }', {}, "target.next_token='age': expected a column of [data.columns] w"),
        ('{ next_token = "note", cuts = [1] }', {}, "cuts=[1]: unknown key"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, target: str, columns: dict[str, str], message: str
) -> None:
    own_texts.vocabulary(tmp_path)
    config.load(own_texts.run_file(tmp_path, '{ next_token = "note" }', 'name = "lstm"'))
    path = own_texts.run_file(tmp_path, target, PYTHON, columns=columns)
    with pytest.raises(ConfigError) as refused:
        config.load(path).define()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "model", "message"),
    [
        ('"outcome"', "logistic", "takes no whole numbers, as the text 'note' has them; use python or"),
        ('"outcome"', "lstm", "learns a token at each place; of the text 'note' something else is le"),
        ('{ next_token = "note" }', "mlp", "takes no whole numbers, as the text 'note' has them; use l"),
    ],
)  # fmt: skip
def test_a_network_that_takes_no_text_is_refused(
    tmp_path: Path, target: str, model: str, message: str
) -> None:
    own_texts.vocabulary(tmp_path)
    keys = f'name = "{model}"' + ("\nhidden = [4]" if model == "mlp" else "")
    with pytest.raises(ConfigError, match=f"model.name={model}: {message}"):
        config.load(own_texts.run_file(tmp_path, target, keys))


@pytest.mark.parametrize("name", ["vocabulary", "digest"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "vocabulary": lambda: vocabulary(tmp_path, "note", 4),
        "digest": lambda: of_file.digest(tmp_path, "note"),
    }
    with pytest.raises(ConfigError, match="note: "):
        calls[name]()


@pytest.mark.parametrize("value", ["5", "[]", "true"])
def test_what_is_wrong_with_a_next_token_is_said_by_its_key(tmp_path: Path, value: str) -> None:
    own_texts.vocabulary(tmp_path)
    path = own_texts.run_file(tmp_path, f"{{ next_token = {value} }}", PYTHON)
    with pytest.raises(ConfigError, match=r"data\.target\.next_token="):
        config.load(path)
