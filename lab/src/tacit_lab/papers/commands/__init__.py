"""The commands that tacit finds by entry points: `figures`, `demo`, and two of `plan`."""

from __future__ import annotations

from tacit_services.laboratory import LaboratoryCommand

from tacit_lab.papers.commands import demo, design, figures, measure

FIGURES = LaboratoryCommand(figures.figures, "tacit figures --quick")
DEMO = LaboratoryCommand(demo.app, "tacit demo inversion")
PLAN_DP_PASGD = LaboratoryCommand(
    design.dp_pasgd,
    "tacit plan dp-pasgd --epsilon 10 --delta 1e-4 --devices 16 --batch 256 --lipschitz 1 "
    "--dim 103 --smoothness 0.25 --strong-convexity 0.01 --lr 0.1 --c1 100 --c2 1 "
    "--resource 1000",
)
PLAN_MEASURE = LaboratoryCommand(
    measure.measure, "tacit plan measure experiments/dp-pasgd-adult1.toml"
)
