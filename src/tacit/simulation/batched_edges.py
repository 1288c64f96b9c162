"""The work of several edges of linear models in one call, with the same bits: for the simulators.

Every edge keeps its own rows, ledger, budget and randomness, and draws from it in the same order.
Only the calls are shared. For small models most of a step's time is the cost of calling torch, and
a call for 32 edges costs little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.models.vectors import score_deltas
from tacit.privacy.private_sum.clipping import Clipped, drawn_outer_sum
from tacit.privacy.private_sum.slots import OuterSlots
from tacit.privacy.release import release_steps_together, release_together
from tacit.protocol.messages import GlobalModel, Push


def batchable(edge: EdgeRole, message: GlobalModel) -> bool:
    """Check whether `answer_together` may take this task.

    The edge refuses nothing and its budget pays.
    """
    if not isinstance(edge, GradientEdge | LocalStepsEdge) or edge.halted or edge.refuses(message):
        return False
    if message.look:
        return False
    return can_batch(edge, message.clip, edge.task_steps(message.version))


def can_batch(edge: EdgeRole, clip: float, count: int = 1) -> bool:
    """Check whether `count` sums of this edge can be computed with others'.

    They can with rigorous noise and a linear model, on the CPU, if the edge and the budget allow
    it.
    """
    slots = edge.private_sum
    alike = isinstance(slots, OuterSlots) and slots.size <= slots.rows and slots.device == "cpu"
    return alike and edge.releaser.can_pay(clip, count)


def answer_together(tasks: Sequence[tuple[EdgeRole, GlobalModel]]) -> list[Push]:
    """Return what `EdgeRole.work` of each edge pushes, for `batchable` tasks of one kind."""
    edges = [edge for edge, _ in tasks]
    messages = [message for _, message in tasks]
    local = [edge.steps(message) for edge, message in tasks if isinstance(edge, LocalStepsEdge)]
    if local:
        releases = release_steps_together(
            [edge.releaser for edge in edges],
            local,
            lambda which, params: _sums(
                [edges[k] for k in which], params, [local[k].clip for k in which]
            ),
        )
    else:
        models = [message.params for message in messages]
        clips = [message.clip for message in messages]
        releases = release_together(
            [edge.releaser for edge in edges], clips, lambda: _sums(edges, models, clips)
        )
    return [
        Push(edge.edge, m.version, released)
        for (edge, m), released in zip(tasks, releases, strict=True)
    ]


def clipped_sums(peers: Sequence[GossipWorker], models: Sequence[Tensor]) -> list[Clipped]:
    """Return what `GossipWorker.gradient` of each peer will release, each at its own model (d,).

    The peers' next steps must be ones that `can_batch`. Nothing is charged or noised yet: that is
    done, and must be, when the step is.
    """
    return _sums(
        peers,
        [params.to(torch.float32) for params in models],
        [peer.settings.clip for peer in peers],
    )


def _sums(
    edges: Sequence[EdgeRole], models: Sequence[Tensor], clips: Sequence[float]
) -> list[Clipped]:
    """Return `PrivateSum.compute` of each edge, at its own model and clip.

    The scores are computed for all slots, as a kernel's bits may depend on their number; the sums
    are of the drawn rows alone.
    """
    slots = [edge.private_sum for edge in edges if isinstance(edge.private_sum, OuterSlots)]
    model = edges[0].model
    batches = [edge_slots.draw() for edge_slots in slots]
    y = torch.cat(
        [
            torch.index_select(edge_slots.y, 0, batch.index)
            for edge_slots, batch in zip(slots, batches, strict=True)
        ]
    )
    with torch.no_grad():
        scores = [
            model.logits(params, torch.index_select(edge_slots.x, 0, batch.index))
            for edge_slots, batch, params in zip(slots, batches, models, strict=True)
        ]
    deltas = torch.split(
        score_deltas(model, torch.cat(scores), y), [edge_slots.size for edge_slots in slots]
    )
    return [
        drawn_outer_sum(delta, edge_slots.x.flatten(1), batch, clip)
        for delta, edge_slots, batch, clip in zip(deltas, slots, batches, clips, strict=True)
    ]
