"""Compares predictions with what came to pass. No federation has such a table: it is the reader's.

compare.py ROWS PREDICTIONS
"""

import csv
import sys
from collections import Counter
from pathlib import Path


def column(path: str, name: str) -> list[str]:
    """Return a column of a CSV."""
    with Path(path).open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


outcomes, predicted = column(sys.argv[1], "outcome"), column(sys.argv[2], "prediction")
right = sum(map(str.__eq__, outcomes, predicted)) / len(outcomes)
most = max(Counter(outcomes).values()) / len(outcomes)
sys.stdout.write(
    f"of patients who came later {right:.1%} are predicted right (the commonest outcome for all: "
    f"{most:.1%}); nothing but this check has read them\n"
)
