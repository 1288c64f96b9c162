"""Notes that people write, made up, and a public tokenizer's file for them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SICK = ("pain", "fever", "cough", "worse")
WELL = ("calm", "rested", "walking", "home")
PLAIN = ("the", "patient", "is", "was", "today", "and", "after", "before")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
EVERY = (*SPECIAL, *PLAIN, *SICK, *WELL)
NUMBERS = {word: number for number, word in enumerate(EVERY)}
NETS = """
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, words, outputs=2):
        super().__init__()
        self.words = nn.Embedding(words, 4)
        self.head = nn.Linear(4, outputs)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


class Language(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words = nn.Embedding(words, 8)
        self.head = nn.Linear(8, words)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x)))
"""


def tokenizer(**changed: Any) -> dict[str, Any]:
    """Return a tokenizer of whole words, as its file has it, with other values of some keys."""
    added = [
        {"id": number, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for number, word in enumerate(SPECIAL)
    ]  # fmt: skip
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": NUMBERS, "unk_token": "[UNK]"},
    }
    return content | changed


def enclosed() -> dict[str, Any]:
    """Return a post-processor that puts [CLS] before a text, and [SEP] after it."""
    parts: list[dict[str, Any]] = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    special = {
        word: {"id": word, "ids": [NUMBERS[word]], "tokens": [word]} for word in ("[CLS]", "[SEP]")
    }
    return {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": special}


def vocabulary(folder: Path, **changed: Any) -> Path:
    """Write the tokenizer's file into `folder`, and return its path."""
    path = folder / "vocabulary.json"
    path.write_text(json.dumps(tokenizer(**changed)), encoding="utf-8")
    return path


def notes(path: Path, count: int, seed: int) -> Path:
    """Write a table of notes, and of what became of those whom they are about."""
    chance = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["note", "outcome"])
        for number in range(count):
            telling = SICK if number % 2 else WELL
            size = int(chance.integers(4, 12))
            words = [
                str(chance.choice(telling if chance.random() < 0.5 else PLAIN)) for _ in range(size)
            ]
            lines.writerow([" ".join(words), "ward" if number % 2 else "home"])
    return path


def run_file(
    folder: Path,
    target: str,
    model: str,
    edges: int = 2,
    updates: int = 40,
    columns: Mapping[str, str] | None = None,
) -> Path:
    """Write a run file for notes, with networks beside it, and return its path.

    target: as TOML. model: lines of [model]. columns: others than the note's and the outcome's.
    """
    (folder / "nets.py").write_text(NETS)
    every = {"note": '{ text = "vocabulary.json", length = 12 }'}
    if target == '"outcome"':
        every["outcome"] = '{ values = ["home", "ward"] }'
    every |= columns or {}
    lines = "\n".join(f"{name} = {column}" for name, column in every.items())
    path = folder / "run.toml"
    path.write_text(
        f"""
[run]
updates = {updates}
[data]
kind = "table"
train = "train.csv"
test = "public.csv"
rows = 600
target = {target}
[data.columns]
{lines}
[model]
{model}
[algorithm]
name = "fedasync"
steps_min = 1
learning_rate = 4.0
[privacy]
pushes = {updates // edges}
epsilon = 8.0
clip = 0.5
[edges]
count = {edges}
[evaluation]
every = 20
"""
    )
    return path
