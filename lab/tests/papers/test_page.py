"""The page of the figures is read without a key: a colour a verdict, cells that are sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tacit_lab.papers.figures import figure_file, page, verdicts

from lab.tests.papers.test_figures import figure


def test_every_verdict_has_a_colour_of_its_own() -> None:
    answers = (True, False, None)
    verdict_names = {
        verdicts.verdict({noise: answer}) for noise in ("paper", "none") for answer in answers
    }
    verdict_names |= {
        verdicts.verdict({"rigorous": answer, "paper": two, "none": three})
        for answer in answers
        for two in answers
        for three in answers
    }
    assert verdict_names == set(page.COLOURS)
    assert len(set(page.COLOURS.values())) == len(page.COLOURS) == 7


@pytest.mark.parametrize(
    ("kind", "text"), [("falling", "ε = 1: from 37 to 9"), ("below", "ε = 1: 37 ± 0")]
)
def test_a_cell_tells_the_name_of_a_line_from_its_numbers(
    tmp_path: Path, kind: Literal["falling", "below"], text: str
) -> None:
    claim = figure_file.Claim(text="a claim", kind=kind, lines=("ε = 1",), tolerance=50.0)
    curve = verdicts.Curve(
        0, "ε = 1", np.array([1.0, 2.0]), np.array([[37.0, 9.0], [37.0, 9.0]]), (None,)
    )
    assert verdicts._check(figure(tmp_path), claim, {"ε = 1": curve})[1] == text
