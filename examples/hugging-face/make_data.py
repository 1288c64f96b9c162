"""Writes made-up notes of patients as data sets of Hugging Face's: train and public."""

from __future__ import annotations

import random
from pathlib import Path

from datasets import Dataset

HERE = Path(__file__).parent
COMMON = ("seen", "today", "with", "family", "no", "fever", "slept", "well", "eats", "takes", "tea")
RETURN = ("alone", "breathless", "swollen", "dizzy", "fell", "confused")
STAY_WELL = ("steady", "cheerful", "mobile", "working", "healed", "calm")


def note(randomness: random.Random, label: int) -> str:
    """Six words that anybody may have, and three of which most are of the label's."""
    own, other = (RETURN, STAY_WELL) if label else (STAY_WELL, RETURN)
    words = randomness.choices(COMMON, k=6)
    words += [randomness.choice(own if randomness.random() < 0.8 else other) for _ in range(3)]
    randomness.shuffle(words)
    return " ".join(words)


def write(name: str, count: int, seed: int) -> None:
    """Save `count` notes beside this file."""
    randomness = random.Random(seed)
    labels = [randomness.randrange(2) for _ in range(count)]
    texts = [note(randomness, label) for label in labels]
    Dataset.from_dict({"text": texts, "label": labels}).save_to_disk(HERE / name)


if __name__ == "__main__":
    write("train", 6000, 1)
    write("public", 1000, 2)
