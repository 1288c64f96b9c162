"""A VAFL server's state in a snapshot: the table, its ages, answers, and what is under way."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.algorithms.vafl.evaluation_rounds import EvaluationRounds
from tacit.algorithms.vafl.requests import Requests
from tacit.protocol.vertical import Feedback, Request


class SnapshotState(Protocol):
    """A server's state in a snapshot.

    table: embeddings (records, parties, width). uploaded: k of each entry's upload (records,
    parties).
    """

    table: Tensor
    uploaded: Tensor
    requests: Requests
    evaluation: EvaluationRounds
    complete: set[str]
    gathered: list[tuple[str, int, Tensor]]
    answers: dict[str, Feedback]


def dump(
    server: SnapshotState, tensors: dict[str, Tensor], values: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return `tensors` and `values`, with what `read` needs."""
    evaluation = server.evaluation
    tensors = {**tensors, "table": server.table.clone(), "uploaded": server.uploaded.clone()}
    tensors |= {
        f"answer.{edge}": answer.gradient.contiguous()
        for edge, answer in server.answers.items()
        if answer.gradient is not None
    }
    return tensors, {
        **values,
        "requests": server.requests.issued,
        "due": evaluation.next,
        "final": evaluation.final,
        "examined": evaluation.over,
        "complete": sorted(server.complete),
        "gathered": [[edge, step, rows.tolist()] for edge, step, rows in server.gathered],
        "answers": {
            edge: [answer.iteration, answer.step] for edge, answer in server.answers.items()
        },
        "asked": {
            edge: [[request.number, request.rows.tolist()] for request in queue]
            for edge, queue in server.requests.open.items()
        },
        "examining": sorted(evaluation.waiting),
        "exam_rows": None if evaluation.rows is None else evaluation.rows.tolist(),
    }


def read(server: SnapshotState, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Continue from what `dump` returned."""
    server.table = tensors["table"]
    server.uploaded = tensors["uploaded"]
    evaluation = server.evaluation
    rows = values["exam_rows"]
    evaluation.next = values["due"]
    evaluation.waiting = set(values["examining"])
    evaluation.final = values["final"]
    evaluation.over = values["examined"]
    if rows is None:
        evaluation.rows = None
    else:
        evaluation.rows = torch.tensor(rows, dtype=torch.int64)
    server.complete = set(values["complete"])
    server.gathered = [(edge, step, torch.tensor(rows)) for edge, step, rows in values["gathered"]]
    server.answers = {
        edge: Feedback(iteration, step, tensors.get(f"answer.{edge}"))
        for edge, (iteration, step) in values["answers"].items()
    }
    server.requests.issued = values["requests"]
    server.requests.open = {
        edge: [Request(number, torch.tensor(rows)) for number, rows in queue]
        for edge, queue in values["asked"].items()
    }
