"""An own module's row changes nothing that another row, or a later push, is computed with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.losses import cross_entropy
from tacit.models.module import ModuleModel, module_model
from tacit.models.recorded import Recorded, recorded
from tacit.models.vectors import example_gradients

WIDTH = 4


class Own(nn.Module):
    """A weight, a parameter that is used once more, and a buffer."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 2)
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("state", torch.zeros(WIDTH))
        self.also = [self.state, self.scale]

    def scores(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        outputs: Tensor = self.head((x + self.state) * self.scale)
        return outputs


def far(x: Tensor) -> Tensor:
    """Return 1 for a row that no public row is, else 0."""
    return (x.detach().flatten()[0] > 1e4).float()


def model_of(kind: type[nn.Module], *, trusted: bool = False) -> ModuleModel:
    return module_model(
        f"nets:{kind.__name__}",
        kind,
        shape=(WIDTH,),
        outputs=2,
        loss=cross_entropy,
        trainable=["head.*", "scale"],
        trusted=trusted,
    )


def check_nothing_is_kept(model: ModuleModel) -> None:
    """Check that the other rows, the parameters and a later call have the bits of before."""
    params = model.init(3)
    x, y = model.random_batch(5, torch.Generator().manual_seed(3))
    strange = x.clone()
    strange[0] = 1e5
    before = params.clone()
    usual = example_gradients(model, params, x, y)
    gradients = example_gradients(model, params, strange, y)
    assert torch.equal(gradients[1:], usual[1:])
    assert not torch.equal(gradients[0], usual[0])
    assert torch.equal(example_gradients(model, params, x, y), usual)
    assert torch.equal(params, before)
    assert (strange[0] == 1e5).all()


class SetBuffer(Own):
    """Takes a buffer's memory for a tensor of its own, and writes to that."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.empty(0)
        alias.set_(self.state)  # type: ignore[call-overload]
        alias.add_(far(x))
        return self.scores(x)


class SetParameter(Own):
    """The same with a parameter."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.empty(0)
        alias.set_(self.scale.detach())  # type: ignore[call-overload]
        alias.add_(far(x))
        return self.scores(x)


class Named(Own):
    """The same by the operation's full name."""

    def forward(self, x: Tensor) -> Tensor:
        alias = torch.zeros(WIDTH)
        torch.ops.aten.set_.source_Tensor(alias, self.state)
        alias.copy_(self.state + far(x))
        return self.scores(x)


class Resized(Own):
    """Gives a tensor another size, which may leave it numbers of what was there."""

    def forward(self, x: Tensor) -> Tensor:
        resized = torch.zeros(2 * WIDTH)
        torch.ops.aten.resize_(resized, [WIDTH])
        return self.scores(x + resized)


class Listed(Own):
    """Writes to a list of tensors."""

    def forward(self, x: Tensor) -> Tensor:
        torch._foreach_add_([self.state], [far(x)])
        return self.scores(x)


@pytest.mark.parametrize("kind", [SetBuffer, SetParameter, Named, Resized, Listed])
def test_a_write_that_may_reach_what_is_given_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match="writes, or may write"):
        model_of(kind)


class InPlace(Own):
    """Writes to tensors of its own alone, and has a constant."""

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.zeros_like(x)
        mixed[:, 0] = x[:, 1]
        mixed[:, [1, 2]] = 2 * x[:, :2]
        mixed.add_(x).mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return self.scores(torch.relu_(mixed.unsqueeze(1).squeeze_(1) - 0.1))


def test_a_list_that_writes_to_its_own_tensors_keeps_nothing() -> None:
    model = model_of(InPlace)
    recording = recorded(model, "cpu", torch.float32, torch.int64)
    assert isinstance(recording, Recorded)
    constants = [constant.clone() for constant in recording.graph.buffers()]
    check_nothing_is_kept(model)
    assert all(map(torch.equal, constants, recording.graph.buffers()))


def test_the_operations_of_a_list_read_copies_alone() -> None:
    recording = recorded(model_of(InPlace), "cpu", torch.float32, torch.int64)
    assert isinstance(recording, Recorded)
    sources = [
        node for node in recording.graph.graph.nodes if node.op in ("placeholder", "get_attr")
    ]
    assert {node.op for node in sources} == {"placeholder", "get_attr"}
    for node in sources:
        assert [user.target for user in node.users] == [torch.ops.aten.clone.default]


class Listing(Own):
    """Branches on a number that `tolist` gives."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x if x.tolist()[0][0] < 1 else -x)


class Hidden(Own):
    """Branches on a number of a tensor that was a constant."""

    def forward(self, x: Tensor) -> Tensor:
        largest = torch.tensor([0.0])
        largest[0] = x.detach().max()
        return self.scores(x if largest.item() < 1 else -x)


class Asserting(Own):
    """Raises for a number of a tensor that was a constant."""

    def forward(self, x: Tensor) -> Tensor:
        largest = torch.tensor([0.0])
        largest[0] = x.detach().max()
        if largest.item() > 1:
            raise ValueError
        return self.scores(x)


@pytest.mark.parametrize("kind", [Listing, Hidden, Asserting])
def test_a_branch_on_numbers_that_torch_does_not_see_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ConfigError, match="it takes other steps for other numbers"):
        model_of(kind)


class Unsteady(Own):
    """Overflows on public rows that are far away, and divides by zero at zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(torch.exp(x * x) + 1 / x.sum(1, keepdim=True))


def test_a_module_whose_gradients_overflow_may_be_recorded() -> None:
    model = model_of(Unsteady)
    x = torch.tensor([[0.5] * WIDTH, [100.0] * WIDTH, [0.0] * WIDTH])
    gradients = example_gradients(model, model.init(3), x, torch.tensor([0, 1, 1]))
    assert gradients.isfinite().all(1).tolist() == [True, False, False]


class Branches(Own):
    """Has to be trusted, and writes where it can."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.sum()) > 1e9:
            x = x * 2
        self.write(x)
        return self.scores(x)

    def write(self, x: Tensor) -> None:
        """Write something of the row."""
        self.state.data.add_(far(x))


class BranchesParameter(Branches):
    """Writes to its parameters."""

    def write(self, x: Tensor) -> None:
        self.scale.data.add_(far(x))


class BranchesKept(Branches):
    """Writes to numbers that it has by another name, and reads those."""

    def write(self, x: Tensor) -> None:
        for tensor in self.also:
            tensor.data.add_(far(x))

    def scores(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        return super().scores(x + self.also[0].detach() + self.also[1].detach())


class BranchesRow(Branches):
    """Writes to its row."""

    def write(self, x: Tensor) -> None:
        x.data.add_(1.0)


@pytest.mark.parametrize("kind", [Branches, BranchesParameter, BranchesKept, BranchesRow])
def test_a_row_of_trusted_code_leaves_nothing_for_the_next(kind: type[nn.Module]) -> None:
    check_nothing_is_kept(model_of(kind, trusted=True))
