"""Figure files, resumable sweeps, verdicts on claims, and the page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit_lab.papers.figures import draw, figure_file, page, stored_results, sweep, verdicts
from tacit_lab.papers.figures.figure_file import Figure
from tacit_lab.papers.figures.stored_results import Result
from tacit_lab.papers.figures.untrained_points import UntrainedPoint

from lab.tests.papers.figure_files import HEAD, written
from tacit import config
from tacit.algorithms.vafl import vertical_settings
from tacit.config import RunFile
from tacit.errors import ConfigError
from tacit.privacy.accounting import gdp
from tests.conftest import ROOT
from tests.system.cli.test_main import Captured, one_line, tacit

CACHED = """
run = {updates = 6}
data = {dataset = "digits"}
model = {name = "logistic"}
algorithm = {name = "vafl", mode = "cached"}
edges = {count = 2}
evaluation = {every = 3}
privacy = {mechanism = "gaussian", epsilon = 30.0, pushes = 1, clip = 1.0, batch = 16}
"""
FIGURE = (
    HEAD
    + """
seeds = [1, 2]
[base]
run = {updates = 4}
data = {dataset = "digits"}
model = {name = "logistic"}
algorithm = {name = "fedasync", steps_min = 1}
privacy = {mechanism = "none", batch = 8, clip = 1.0}
edges = {count = 2}
[quick]
run = {updates = 2}
[[panel]]
title = "plain"
noise = "none"
points = [{x = 1, set = {algorithm = {steps_min = 1}}}, {x = 3, set = {algorithm = {steps_min = 3}}}]
[[panel]]
title = "private"
noise = "rigorous"
full = true
set = {privacy = {mechanism = "gaussian"}}
points = [{x = 1, set = {algorithm = {steps_min = 1}}}, {x = 3, set = {algorithm = {steps_min = 3}}}]
[[line]]
name = "A"
[[line]]
name = "B"
flat = true
panels = ["none"]
drop = ["algorithm.steps_min"]
[[claim]]
text = "A is above B"
kind = "order"
lines = ["A", "B"]
"""
)
OVER_TIME = "".join(line for line in FIGURE.splitlines(True) if not line.startswith("points"))
OVER_TIME = (
    OVER_TIME.replace("{", "{{").replace("}", "}}").replace('x = "x"', 'x = "x"\nover = "{}"', 1)
)


def figure(tmp_path: Path, text: str = FIGURE) -> Figure:
    return written(tmp_path, text)


class TestFiles:
    def test_every_run_of_a_figure_and_only_those(self, tmp_path: Path) -> None:
        cells = list(figure_file.plotted_runs(figure(tmp_path), quick=False))
        assert {(c.panel, c.line, c.x) for c in cells} == {
            (0, 0, 1),
            (0, 0, 3),
            (0, 1, None),
            (1, 0, 1),
            (1, 0, 3),
        }
        assert len(cells) == 10
        assert [c.run.algorithm.traits(1).steps for c in cells if c.line == 0 and c.seed == 1] == [
            1,
            3,
            1,
            3,
        ]
        assert all(c.run.run.seed == c.seed and c.run.run.updates == 4 for c in cells)

    def test_quick_is_smaller(self, tmp_path: Path) -> None:
        cells = list(figure_file.plotted_runs(figure(tmp_path), quick=True))
        assert {c.panel for c in cells} == {0}
        assert {c.run.run.updates for c in cells} == {2}

    @pytest.mark.parametrize(
        ("before", "after", "complaint"),
        [
            ('kind = "order"', 'kind = "best"', "claim.0.kind"),
            ("[figure]", "[figure", "f.toml"),
            ("steps_min = 1}\n", "steps_minn = 1}\n", "steps_minn"),
            ("[base]\n", "[base]\nx = 1\n", "x=1: unknown key"),
            ("[base]\n", f"[base]\nx = {5000 * '['}{5000 * ']'}\n", "f.toml"),
            ("seeds = [1, 2]", "seeds = []", "figure.seeds"),
            (
                'lines = ["A", "B"]',
                'lines = ["A", "C"]',
                "claim 'A is above B': there is no line 'C'",
            ),
            ('lines = ["A", "B"]', 'lines = ["A"]\npanels = ["p"]', "there is no panel 'p'"),
            ("x = 3,", "x = 1,", "points of panel 'plain': x=1.0: more than once"),
            ("x = 3,", "x = nan,", "panel.0.points.1.x=nan"),
            ('name = "B"', 'name = "A"', "line.name='A': more than once"),
            ("seeds = [1, 2]", "seeds = [1, 1]", "figure.seeds=1: more than once"),
            ("seeds = [1, 2]", 'seeds = [1, 2]\ny = "tau"', "figure.y='tau': needs base.design"),
            (
                "seeds = [1, 2]",
                'seeds = [1, 2]\ny = "reached"',
                "figure.y='reached': needs figure.below",
            ),
            (
                "seeds = [1, 2]",
                'seeds = [1, 2]\nover = "version"',
                "figure.over='version': its panels have no points",
            ),
        ],
    )
    def test_a_wrong_one_is_one_line(
        self, tmp_path: Path, before: str, after: str, complaint: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(complaint)) as error:
            list(
                figure_file.plotted_runs(
                    figure(tmp_path, FIGURE.replace(before, after, 1)), quick=False
                )
            )
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        "path", sorted((ROOT / "lab" / "figures").glob("*.toml")), ids=lambda p: p.stem
    )
    def test_the_ones_that_are_there(self, path: Path) -> None:
        read_figure = figure_file.read(path)
        names = {line.name for line in read_figure.line}
        assert len(read_figure.figure.seeds) >= 5
        assert list(figure_file.plotted_runs(read_figure, quick=True))
        for claim in read_figure.claim:
            assert names.issuperset(claim.lines)
            assert {panel.title for panel in read_figure.panel}.issuperset(claim.panels)


Scores = dict[tuple[int, str, float | None], float]  # final accuracy by panel, line, x


def results(plan: Figure, scores: Scores) -> dict[str, Result]:
    """Return a result for every run, of these final accuracies.

    Seeds differ a little from each other.
    """
    by_name = {}
    for cell in figure_file.plotted_runs(plan, quick=False):
        score = scores[cell.panel, plan.line[cell.line].name, cell.x] + 0.01 * cell.seed
        point = {"version": 4, "accuracy": score, "loss": 1 - score, "gradients": 4}
        by_name[stored_results.result_name(cell.run)] = {
            "series": [point],
            "epsilon": 2.5 if cell.panel else None,
        }
    return by_name


def verdict(
    tmp_path: Path, plain: float, private: float, text: str = FIGURE
) -> verdicts.JudgedClaim:
    text = text.replace('panels = ["none"]\n', "")  # B in both panels
    plan = figure(tmp_path, text)
    scores: Scores = {
        (p, "A", x): value for p, value in ((0, plain), (1, private)) for x in (1.0, 3.0)
    }
    scores[0, "B", None] = scores[1, "B", None] = 0.5
    (judged,) = verdicts.judge(
        plan,
        verdicts.curves(
            plan, list(figure_file.plotted_runs(plan, quick=False)), results(plan, scores)
        ),
    )
    return judged


class TestVerdicts:
    @pytest.mark.parametrize(
        ("plain", "private", "expected"),
        [
            (0.6, 0.6, verdicts.HOLDS),
            (0.4, 0.6, verdicts.HOLDS),
            (0.6, 0.4, verdicts.PLAIN_ONLY),
            (0.4, 0.4, verdicts.FAILS),
        ],
    )
    def test_rigorous_noise_decides(
        self, tmp_path: Path, plain: float, private: float, expected: str
    ) -> None:
        assert verdict(tmp_path, plain, private).verdict == expected

    def test_the_papers_noise_is_named(self, tmp_path: Path) -> None:
        text = FIGURE.replace('noise = "none"', 'noise = "paper"')
        assert verdict(tmp_path, 0.6, 0.4, text).verdict == verdicts.PAPER_ONLY

    def test_between_the_seeds_nothing_can_be_told(self, tmp_path: Path) -> None:
        """Set the means apart, and the seeds as well.

        The interval of the differences then has 0 in it.
        """
        plan = figure(tmp_path)
        low = verdicts.Curve(0, "B", np.array([1.0]), np.array([[0.50], [0.52], [0.54]]), (None,))
        apart = verdicts.Curve(0, "A", np.array([1.0]), np.array([[0.52], [0.52], [0.60]]), (None,))
        (judged,) = verdicts.judge(plan, [apart, low])
        assert judged.holds == {"none": None}
        assert judged.verdict == verdicts.UNCLEAR
        # As wide a band, but the difference is the same for every seed: that is no chance.
        always = verdicts.Curve(0, "A", np.array([1.0]), low.y + 0.01, (None,))
        (judged,) = verdicts.judge(plan, [always, low])
        assert judged.holds == {"none": True}

    @pytest.mark.parametrize(
        ("answers", "expected"),
        [
            ({"rigorous": True, "paper": False}, "holds"),
            ({"rigorous": None, "paper": True}, "cannot tell"),
            (
                {"rigorous": False, "paper": True, "none": True},
                "holds only with the paper's non-private noise",
            ),
            ({"rigorous": False, "paper": None, "none": True}, "holds only without privacy"),
            ({"rigorous": False, "paper": None}, "does not hold"),
            ({"paper": True}, "holds with the paper's non-private noise (with privacy: not tried)"),
            ({"none": True}, "holds without privacy (with privacy: not tried)"),
            ({"none": None}, "cannot tell"),
            ({"none": False}, "does not hold"),
            ({"paper": False, "none": True}, "holds without privacy (with privacy: not tried)"),
            ({}, "cannot tell"),
        ],
    )
    def test_a_verdict_is_of_rigorous_noise(
        self, answers: dict[figure_file.Noise, verdicts.ThreeValued], expected: str
    ) -> None:
        assert verdicts.verdict(answers) == expected

    def test_within_the_tolerance_is_as_good(self, tmp_path: Path) -> None:
        assert verdict(tmp_path, 0.49, 0.49).verdict == verdicts.FAILS
        assert (
            verdict(tmp_path, 0.49, 0.49, FIGURE + "tolerance = 0.02\n").verdict == verdicts.HOLDS
        )

    @pytest.mark.parametrize(
        ("kind", "good"), [("rising", True), ("falling", False), ("flat", False)]
    )
    def test_a_line_along_x(self, tmp_path: Path, kind: str, good: bool) -> None:
        text = FIGURE.replace(
            'kind = "order"\nlines = ["A", "B"]', f'kind = "{kind}"\nlines = ["A"]'
        )
        plan = figure(tmp_path, text)
        scores: Scores = {(p, "A", x): x / 10 for p in (0, 1) for x in (1.0, 3.0)}
        scores[0, "B", None] = 0.5
        cells = list(figure_file.plotted_runs(plan, quick=False))
        (judged,) = verdicts.judge(plan, verdicts.curves(plan, cells, results(plan, scores)))
        assert judged.holds == {"none": good, "rigorous": good}

    @pytest.mark.parametrize(("tolerance", "good"), [(0.2, True), (0.1, False)])
    def test_below(self, tmp_path: Path, tolerance: float, good: bool) -> None:
        text = FIGURE.replace('kind = "order"\nlines = ["A", "B"]', 'kind = "below"\nlines = ["A"]')
        curve = verdicts.Curve(0, "A", np.array([1.0, 3.0]), np.array([[0.15, 0.9]]), (None,))
        (judged,) = verdicts.judge(figure(tmp_path, f"{text}tolerance = {tolerance}\n"), [curve])
        assert judged.holds == {"none": good}

    def test_the_band_is_students_t(self) -> None:
        curve = verdicts.Curve(0, "A", np.array([1.0]), np.array([[1.0], [2.0], [3.0]]), (None,))
        assert curve.half_width[0] == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_over_time_what_is_compared_is_the_same_time(tmp_path: Path) -> None:
    """B gets further, but later: at any time A is ahead."""
    text = OVER_TIME.format("virtual_time_s")
    curves = [
        verdicts.Curve(0, "A", np.array([0.0, 10.0]), np.array([[0.0, 0.5]]), (None,)),
        verdicts.Curve(0, "B", np.array([0.0, 100.0]), np.array([[0.0, 0.9]]), (None,)),
    ]
    (judged,) = verdicts.judge(figure(tmp_path, text), curves)
    assert judged.holds == {"none": True}
    assert judged.measured["none"].startswith("A: 0.25 ± 0, B: 0.045 ")


def test_over_time_a_flat_line_is_its_end_at_any_time(tmp_path: Path) -> None:
    plan = figure(tmp_path, OVER_TIME.format("version"))
    cells = [cell for cell in figure_file.plotted_runs(plan, quick=True) if cell.line == 1]
    series = [{"version": 0, "accuracy": 0.1}, {"version": 4, "accuracy": 0.3}]
    result = {
        stored_results.result_name(cell.run): {"series": series, "epsilon": None} for cell in cells
    }
    (flat,) = verdicts.curves(plan, cells, result)
    risen = verdicts.Curve(0, "A", np.array([0.0, 4.0]), np.array([[0.2, 0.6]]), (None,))
    (judged,) = verdicts.judge(plan, [risen, flat])
    assert judged.holds == {"none": True}
    assert judged.measured["none"] == "A: 0.4 ± 0, B: 0.3 ± 0 (apart 0.1 ± 0)"
    assert draw.png(plan, [risen, flat]).startswith(b"\x89PNG")


def of_all_parties(run: RunFile) -> float:
    """Return ε of a person in a vertical run whose parties release once, each with its own z."""
    plans = [
        vertical_settings.vertical(run.define()).plan(party) for party in range(run.edges.count)
    ]
    return gdp.epsilon(gdp.compose(1 / plan.noise_multiplier for plan in plans), run.privacy.delta)


class Swept:
    """Two runs of a figure that have been measured, each sweep by a new interpreter."""

    def __init__(self, folder: Path) -> None:
        cells = figure_file.plotted_runs(figure(folder), quick=True)
        self.runs, self.points = {"f": [cell.run for cell in cells][:2]}, folder / "points"
        self.todo: list[int] = []
        self.results = self.sweep(self.points, self.todo)

    def sweep(
        self, folder: Path, todo: list[int], shipped: Path | None = None
    ) -> dict[str, Result]:
        """Return the runs' results, and append to `todo` how many had none, whenever some come."""
        return sweep.sweep(
            self.runs, folder, None, 1, lambda finished, total: todo.append(total), shipped
        )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return Swept(tmp_path_factory.mktemp("swept"))


class TestSweep:
    def test_what_is_known_is_not_run_again(self, tmp_path: Path, swept: Swept) -> None:
        todo = swept.todo.copy()
        shutil.copytree(swept.points, tmp_path / "points")
        assert swept.sweep(tmp_path / "points", todo) == swept.results
        assert todo == [2, 2, 0]  # two seeds of one point come together
        points = tmp_path / "points" / "f.jsonl"
        points.write_bytes(b"".join(points.read_bytes().splitlines(keepends=True)[1:]))
        assert swept.sweep(tmp_path / "points", todo) == swept.results
        assert todo[-1] == 1

    def test_what_is_given_is_not_run_and_not_copied(self, tmp_path: Path, swept: Swept) -> None:
        shipped, todo = swept.results, list[int]()

        def again(place: Path | None) -> dict[str, Result]:
            return swept.sweep(tmp_path / "own", todo, place)

        assert again(swept.points) == shipped
        assert todo == [0]
        assert list((tmp_path / "own").iterdir()) == []
        assert again(None) == shipped  # the same seeds, so the same bits
        assert todo[1] == 2

    def test_an_untrained_model_is_no_result(self) -> None:
        run = RunFile.model_validate(
            {
                "run": {"updates": 3},
                "data": {"dataset": "digits"},
                "model": {"name": "logistic"},
                "algorithm": {"name": "dp-pasgd", "tau": 2, "deadline_s": 5.0},
                "edges": {"count": 2},
                "privacy": {"epsilon": 0.5, "noise_multiplier": 1.0, "batch": 8, "clip": 1.0},
                "network": {"downlink": {"seconds": 100.0}},
            }
        )
        with pytest.raises(ConfigError, match=r"'dp-pasgd' on digits: not one update .* too late"):
            sweep.measure(run, None)

    def test_a_result_has_its_true_epsilon(self, tmp_path: Path) -> None:
        private = next(
            c.run for c in figure_file.plotted_runs(figure(tmp_path), quick=False) if c.panel == 1
        )
        result = sweep.measure(private, None)
        assert 0 < result["epsilon"] <= private.privacy.epsilon
        assert [point["version"] for point in result["series"]] == [0, 4]

    def test_a_vertical_run_is_measured_on_embeddings(
        self, tmp_path: Path, capsys: Captured
    ) -> None:
        run = config.parse(CACHED, "test")
        result = sweep.measure(run, None)
        assert [point["version"] for point in result["series"]] == [3, 6]
        # Of a person at both parties, exactly, in μ (PLD would say infinite): 30 is that of one.
        assert result["epsilon"] == pytest.approx(of_all_parties(run), abs=1e-4)
        assert 45 < result["epsilon"] < 50
        file = tmp_path / "run.toml"
        file.write_text(CACHED)
        assert tacit("simulate", str(file), "--out", str(tmp_path / "out")) == 0
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert result["epsilon"] == round(summary["privacy"]["epsilon"], 4)
        assert capsys.readouterr().err == ""

    def test_kept_points_of_vertical_runs_have_the_epsilon_of_all_parties_together(self) -> None:
        figures = [
            figure_file.read(path) for path in (ROOT / "lab" / "figures").glob("vafl-*.toml")
        ]
        cells = (
            cell
            for figure in figures
            for quick in (False, True)
            for cell in figure_file.plotted_runs(figure, quick=quick)
        )
        private = {
            stored_results.result_name(cell.run): cell.run
            for cell in cells
            if cell.run.privacy.private
        }
        stored = stored_results.read_folder(ROOT / "lab" / "figures" / "points")
        epsilons = {name: stored[name]["epsilon"] for name in private if name in stored}
        assert len(epsilons) == 110
        assert epsilons == {
            name: pytest.approx(of_all_parties(private[name]), abs=1e-4) for name in epsilons
        }


class TestAsked:
    """Points that no training gives."""

    def base(self, **changed: Any) -> dict[str, Any]:
        return figure_file.merged(
            {"run": {"updates": 1}, "data": {"dataset": "digits"}, "model": {"name": "logistic"}},
            changed,
        )

    def test_the_planners_tau_and_what_its_noise_costs(self) -> None:
        def measured(planner: str) -> Result:
            table = self.base(
                algorithm={"name": "dp-pasgd", "learning_rate": 0.1},
                privacy={"epsilon": 1.0, "delta": 1e-4, "batch": 64, "clip": 1.0},
                edges={"count": 16},
                network={"downlink": {"seconds": 100.0}},
                design={
                    "planner": planner,
                    "resource": 1000.0,
                    "smoothness": 0.25,
                    "strong_convexity": 0.01,
                },
            )
            return sweep.measure(UntrainedPoint.model_validate(table), None)

        assert measured("corrected")["epsilon"] == 1.0
        assert measured("paper")["epsilon"] > 50
        assert measured("paper")["series"][0]["tau"] > measured("corrected")["series"][0]["tau"]

    def test_the_attack_sees_through_no_noise_only(self) -> None:
        def measured(algorithm: str, **privacy: Any) -> Result:
            table = self.base(
                algorithm={"name": algorithm},
                edges={"count": 1437},
                attack={"pushes": 2, "victims": 2},
                privacy={"batch": 1, "clip": 10.0, "pushes": 2, **privacy},
            )
            return sweep.measure(UntrainedPoint.model_validate(table), None)

        plain, private = (
            measured("asgd", mechanism="none"),
            measured("mapa", mechanism="gaussian", epsilon=2.0),
        )
        assert plain["series"][0]["likeness"] > 0.99
        assert plain["epsilon"] is None
        assert private["series"][0]["likeness"] < 0.5
        assert private["epsilon"] <= 2

    def test_a_figure_file_says_what_is_asked(self, tmp_path: Path) -> None:
        text = FIGURE.replace("[quick]", "attack = {pushes = 1}\n[quick]")
        assert all(
            isinstance(cell.run, UntrainedPoint)
            for cell in figure_file.plotted_runs(figure(tmp_path, text), quick=False)
        )


def test_the_command_makes_one_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure(tmp_path)
    out, table = tmp_path / "out", tmp_path / "results.md"
    arguments = (
        "--quick",
        "--out",
        str(out),
        "--folder",
        str(tmp_path),
        "--jobs",
        "1",
        "--results",
        str(table),
    )
    assert tacit("figures", *arguments) == 0
    page_text = (out / "index.html").read_text()
    assert page_text.count("<img") == page_text.count("src='data:image/png;base64,") == 1
    assert not re.search(r"(src|href)='?http", page_text)
    (judged,) = json.loads((out / "verdicts.json").read_text())
    assert "<a href='#f'>" in page_text
    assert f"<td>1 {judged['verdict']}</tr>" in page_text  # in the overview
    assert f"'>{judged['verdict']}</tr>" in page_text  # beside its claim
    assert judged["verdict"] in table.read_text()
    assert f"f: A is above B: {judged['verdict']}" in capsys.readouterr().out
    pages = [out / "index.html", table]
    before = [path.read_bytes() for path in pages]
    assert tacit("figures", *arguments) == 0
    assert [path.read_bytes() for path in pages] == before


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("--out", "f.toml", "Not a directory"),
        ("--out", "/proc/x", "No such file"),
        ("--results", "/nodir/x", "No such file"),
        ("--results", "", "Is a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_said_before_the_sweep(
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    place: str,
    message: str,
) -> None:
    figure(tmp_path)
    monkeypatch.setattr(sweep, "sweep", None)
    place = str(tmp_path / place)
    places = {"--out": str(tmp_path / "out"), "--folder": str(tmp_path), option: place}
    assert tacit("figures", "--quick", *(part for pair in places.items() for part in pair)) == 2
    assert f"{option} {place}: {message}" in one_line(capsys)
    assert not (tmp_path / "out" / "index.html").exists()


def test_a_picture_of_lines_over_time(tmp_path: Path) -> None:
    plan = figure(tmp_path, OVER_TIME.format("version"))
    x = np.array([0.0, 2.0, 4.0])
    curves = [verdicts.Curve(0, "A", x, np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]]), (None,))]
    assert draw.png(plan, curves).startswith(b"\x89PNG")


@pytest.mark.parametrize("x", [[0.01, 0.1, 1.0], [1.0, 4.0, 16.0], [2.0, 3.0, 5.0]])
def test_a_logarithmic_axis_has_numbers(tmp_path: Path, x: list[float]) -> None:
    from matplotlib import pyplot as plt

    draw.png(
        figure(tmp_path), [verdicts.Curve(0, "A", np.array(x), np.array([x]), (None,))]
    )  # formulas are off now
    drawn, axis = plt.subplots()
    axis.plot(x, x)
    axis.set_xscale("log")
    draw._plain(axis.xaxis)
    drawn.canvas.draw()
    labels = [
        label.get_text()
        for which in ("major", "minor")
        for label in axis.get_xticklabels(which=which)
    ]
    assert sum(bool(label) for label in labels) > 1
    assert all(re.fullmatch(r"[0-9.e+-]*", label) for label in labels)
    plt.close(drawn)


def test_text_of_a_figure_cannot_become_html() -> None:
    assert "<b>" not in page._row(
        verdicts.JudgedClaim(
            figure_file.Claim(text="<b>", kind="order", lines=("A",)),
            {"none": True},
            {"none": "<b>"},
            verdicts.HOLDS,
        )
    )
