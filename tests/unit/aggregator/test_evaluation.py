"""Evaluation beside training: what it keeps."""

from __future__ import annotations

import threading
import weakref

from tacit_services.aggregator.reporting.evaluation import Evaluator, Points, public_sample

from tacit.algorithms import registry
from tests.helpers.processes import PATIENCE
from tests.helpers.run_files import MAPA, run_file
from tests.helpers.servers import wait_for


def test_a_model_that_was_evaluated_is_not_kept() -> None:
    definition, measured = run_file(MAPA, run={"updates": 9}).define(), threading.Event()
    model, test = definition.build_model(), definition.source.test(None)
    role = registry.server(definition, model, None)
    assert test is not None
    sample = public_sample(definition, test)
    evaluator = Evaluator(Points(definition, model, test, sample, lambda *_: measured.set()))
    evaluator.offer(role)
    assert measured.wait(PATIENCE)
    before = weakref.ref(role.params)
    role.params = role.params.clone()
    wait_for(lambda: before() is None, PATIENCE)
    evaluator.close()
