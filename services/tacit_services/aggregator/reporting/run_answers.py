"""The answers to a run's questions, from the noisy sums that its edges have released."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.algorithms.ask.ask_algorithm import deviation
from tacit.config.asked_table import AskedTable
from tacit.config.definition import Definition
from tacit.questions.answer_document import Basis, document
from tacit.questions.estimates import answers
from tacit_services.aggregator.reading import RunReading

FILE = "answers.json"


class RunAnswers:
    """The answers to a run's questions; of one version of the sums they are made once."""

    def __init__(self, definition: Definition[Any]) -> None:
        self._definition = definition
        self._version = 0
        self._documents: list[dict[str, Any]] = []

    def of(self, reading: RunReading) -> list[dict[str, Any]]:
        """Return a document for each question; none where no edge has answered, or none is asked.

        Any thread may ask.
        """
        if self._definition.ask is None or not reading.version:
            return []
        if reading.version != self._version:
            self._documents = _answered(self._definition, reading)
            self._version = reading.version
        return self._documents


def _answered(definition: Definition[Any], reading: RunReading) -> list[dict[str, Any]]:
    assert definition.ask is not None
    assert isinstance(definition.data, AskedTable)
    edges = [name for name, record in reading.records.items() if record.updates]
    most = definition.data.unit_rows or 1  # what each row's vector was divided by
    sums = reading.params.double().numpy() * most
    sheet = definition.data.question_sheet(definition.ask)
    noise = deviation(definition, edges, sheet.most_entries) * most
    basis = Basis(
        len(edges),
        max(definition.edges.count, len(edges)),
        definition.privacy.epsilon,
        definition.privacy.delta,
        definition.source.unit,
    )
    return [document(each, basis) for each in answers(sheet, np.asarray(sums), noise)]
