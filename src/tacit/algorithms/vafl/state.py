"""A VAFL server's state in a snapshot: the table, its ages, answers, and what is under way."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.protocol.vertical import Feedback, Request


class State(Protocol):
    """What a server keeps:

    its table of embeddings (records, parties, width), who answered, what is under way.
    """

    table: Tensor
    uploaded: Tensor
    requests: int
    due: int
    final: bool
    examined: bool
    complete: set[str]
    examining: set[int]
    gathered: list[tuple[str, int, Tensor]]
    answers: dict[str, Feedback]
    asked: dict[str, list[Request]]
    exam_rows: Tensor | None


def dump(
    server: State, tensors: dict[str, Tensor], values: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`tensors` and `values`, with what `read` needs."""
    tensors = {**tensors, "table": server.table, "uploaded": server.uploaded}
    tensors |= {
        f"answer.{edge}": one.gradient.contiguous()
        for edge, one in server.answers.items()
        if one.gradient is not None
    }
    return tensors, {
        **values,
        "requests": server.requests,
        "due": server.due,
        "final": server.final,
        "examined": server.examined,
        "complete": sorted(server.complete),
        "gathered": [[edge, step, rows.tolist()] for edge, step, rows in server.gathered],
        "answers": {edge: [one.iteration, one.step] for edge, one in server.answers.items()},
        "asked": {
            edge: [[one.number, one.rows.tolist()] for one in asked]
            for edge, asked in server.asked.items()
        },
        "examining": sorted(server.examining),
        "exam_rows": None if server.exam_rows is None else server.exam_rows.tolist(),
    }


def read(server: State, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Continue from what `dump` returned."""
    server.table, server.uploaded = tensors["table"], tensors["uploaded"]
    server.requests, server.due = values["requests"], values["due"]
    server.final, server.examined = values["final"], values["examined"]
    server.complete, server.examining = set(values["complete"]), set(values["examining"])
    server.gathered = [(edge, step, torch.tensor(rows)) for edge, step, rows in values["gathered"]]
    server.answers = {
        edge: Feedback(iteration, step, tensors.get(f"answer.{edge}"))
        for edge, (iteration, step) in values["answers"].items()
    }
    server.asked = {
        edge: [Request(number, torch.tensor(rows)) for number, rows in asked]
        for edge, asked in values["asked"].items()
    }
    server.exam_rows = (
        None
        if values["exam_rows"] is None
        else torch.tensor(values["exam_rows"], dtype=torch.int64)
    )
