"""Writes notes.npz (private), public.npz (the test set), and base.safetensors (the public start).

The start is what a small transformer has learnt of the public pages that Python brings along. The
notes are made up, as a ward might write them.
"""

import random
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from nets import CHARACTERS, PLACES, Net, with_additions  # noqa: E402

STEPS, BATCH = 1_500, 64
WHO = ("pt", "patient", "mother", "wife", "nurse", "gp")
SAYS = ("reports", "denies", "describes", "notes", "asks about")
WHAT = ("chest pain", "fever", "dry cough", "nausea", "headache", "leg oedema", "dyspnoea", "rash")
WHEN = ("since monday", "overnight", "for 3 days", "after meals", "at rest", "on exertion")
FOUND = ("bp 120/80", "hr 88 reg", "sats 96% ra", "temp 37.9", "crp 14", "ecg nsr", "cxr clear")
PLAN = ("plan: iv fluids", "plan: repeat bloods", "plan: home today", "plan: ct head", "d/w cardio")


def note(chance: random.Random) -> str:
    """One note, of a few short sentences."""
    parts = [
        f"{chance.choice(WHO)} {chance.choice(SAYS)} {chance.choice(WHAT)} {chance.choice(WHEN)}"
    ]
    parts += [chance.choice(FOUND), chance.choice(FOUND), chance.choice(PLAN)]
    return ". ".join(parts) + "."


def numbers(text: str) -> list[int]:
    """Numbers of its characters: 0 is a blank, and stands for all that is not printable ASCII."""
    return [ord(letter) - 32 if 32 <= ord(letter) < 127 else 0 for letter in text]


def rows(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """x and y (n, PLACES): y is the next character; -100, behind the end, is learnt by nobody."""
    x = np.zeros((len(texts), PLACES), dtype=np.int64)
    y = np.full((len(texts), PLACES), -100, dtype=np.int64)
    for place, text in enumerate(texts):
        line = numbers(text)[: PLACES + 1]
        x[place, : len(line) - 1], y[place, : len(line) - 1] = line[:-1], line[1:]
    return x, y


def pretrained() -> dict[str, torch.Tensor]:
    """What Net() has learnt of Python's own pages, a window at a time."""
    torch.manual_seed(1)
    pages = torch.tensor(numbers(" ".join(" ".join(topics.values()).lower().split())))
    net = Net()
    rate = torch.optim.AdamW(net.parameters(), 3e-3)
    planned = torch.optim.lr_scheduler.OneCycleLR(rate, 3e-3, total_steps=STEPS)
    for _ in range(STEPS):
        first = torch.randint(len(pages) - PLACES - 1, (BATCH, 1)) + torch.arange(PLACES + 1)
        line = pages[first]
        scores = net(line[:, :-1]).reshape(-1, CHARACTERS)
        rate.zero_grad()
        functional.cross_entropy(scores, line[:, 1:].reshape(-1)).backward()
        rate.step()
        planned.step()
    return with_additions(net.state_dict())


torch.set_num_threads(1)
chance = random.Random(1)
for name, count in (("notes", 8_000), ("public", 500)):
    x, y = rows([note(chance) for _ in range(count)])
    np.savez(HERE / f"{name}.npz", x=x, y=y)
save_file(pretrained(), HERE / "base.safetensors")
