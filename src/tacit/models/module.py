"""A user's own `torch.nn.Module` as a model of one flat vector, with exact per-example gradients.

The vector (d,) is the module's trainable parameters in the order of their definition; a parameter
that is used twice, or tied, is in it once. A module whose code shows that it is made of common
layers takes one backward pass for the batch (`models.module_layers`). Of any other, every example
goes through the module alone, as a batch of one, by the operations that were recorded when the
model was made (`models.recorded`). Both give the gradient of that example's own loss, whatever its
companions.

    >>> import torch
    >>> from tacit.models.losses import cross_entropy
    >>> from tacit.models.module import module_model
    >>> def net():
    ...     layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ...     return torch.nn.Sequential(*layers)
    >>> model = module_model("nets:net", net, shape=(4,), outputs=2, loss=cross_entropy)
    >>> model.size, model.logits(model.init(1), torch.zeros(3, 4)).shape
    (58, torch.Size([3, 2]))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.models.losses import LOSSES, Loss, cross_entropy, mse, of_each
from tacit.models.model_contract import LayerValues, Layout
from tacit.models.module_layers import RAISED, SeenModule, check_layers, seen_through
from tacit.models.objectives import Objective
from tacit.models.own_network import OwnNetwork, is_trainable
from tacit.models.recorded import recorded
from tacit.models.vectors import agrees, example_gradients

Factory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class ModuleModel(OwnNetwork):
    """A module, its public start and its loss. Compared by identity: code has no equality.

    digest: what the code of the entry hashes to, in hexadecimal. frozen: parameters and buffers
    that are not trained. start: values by name that take the place of the module's own. classes:
    numbers that it gives for an example; 0: whatever its own loss takes. labels: classes of the
    target; 0 where it has none. example_loss: None: the objective's. trusted: whether code may
    branch on a row's numbers, which its time then tells of; it is run for each row in a copy of the
    module and of all numbers that it is given, so that no row finds what another left in them.
    integers: what an example's whole numbers are below; None: it is float32.
    """

    digest: str = ""
    factory: Factory = field(default=nn.Identity, compare=False, repr=False)
    example_loss: Loss | None = field(default=cross_entropy, compare=False, repr=False)
    trainable: tuple[str, ...] = ("*",)
    start: Mapping[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    labels: int = 0
    trusted: bool = False
    integers: int | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def module(self) -> nn.Module:
        """The module whose code is run; its parameters are given with every call."""
        return self._build(seed=0)

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every trainable parameter, each once, in the order of its definition."""
        return tuple(
            (name, tuple(parameter.shape)) for name, parameter in self._trained(self.module)
        )

    @cached_property
    def frozen(self) -> dict[str, Tensor]:
        """Parameters that are not trained, and buffers, by name; public."""
        trained = {name for name, _ in self._trained(self.module)}
        untrained = {
            name: parameter.detach()
            for name, parameter in self.module.named_parameters()
            if name not in trained
        }
        return untrained | dict(self.module.named_buffers())

    @property
    def variant(self) -> str:
        """The code's digest: two models whose vectors are interchangeable have the same."""
        return f"code {self.digest}"

    @cached_property
    def seen(self) -> SeenModule | None:
        """The module's layers, where its code shows all of them."""
        module = self._build(seed=0)
        trained = {name for name, _ in self._trained(module)}
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in trained)
        dtype = torch.float32 if self.integers is None else torch.int64
        return seen_through(module, self.shape, dtype)

    @cached_property
    def traced(self) -> bool:
        """Whether one backward pass finds the gradients of a trial.

        Its layers must be seen, and its loss be one of tacit's.
        """
        known_loss = self.example_loss is None or self.example_loss in LOSSES.values()
        return known_loss and self.seen is not None and agrees(self)

    def anew(self) -> ModuleModel:
        """Return the same model with a module that has not been run."""
        model = replace(self)
        model.layout, model.frozen  # noqa: B018  (made here, and not where the module is recorded)
        return model

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return only the module as a whole: its input and its scores."""
        return [LayerValues(x, self.logits(params, x))]

    def at_work(self, params: Tensor, x: Tensor) -> tuple[list[LayerValues], Tensor]:
        """Return every layer at work, and the scores, of a batch x (B, *shape); only if `seen`."""
        assert self.seen is not None
        return self.seen.run({**self.unflatten(params), **self.frozen}, x)

    def init(self, seed: int) -> Tensor:
        """Return the module's own initial parameters (d,), of the seed alone, or its start."""
        return torch.cat(
            [parameter.detach().reshape(-1) for _, parameter in self._trained(self._build(seed))]
        )

    def state(self, params: Tensor) -> dict[str, Tensor]:
        """Return what the module loads: frozen parameters too, and tied ones by all names."""
        module = self._build(seed=0)
        with torch.no_grad():
            for name, value in self.unflatten(params).items():
                module.get_parameter(name).copy_(value)
        return {name: value.clone() for name, value in module.state_dict().items()}

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the module's output of a batch x (B, *shape), or of one example (*shape)."""
        state = {**self.unflatten(params), **self._frozen_on(params.device)}
        module = self.module
        if self.trusted:  # nothing that its code writes to is there for the next row
            module = copy.deepcopy(module)
            x = x.clone()
            state = {name: value.clone() for name, value in state.items()}
        with sdpa_kernel(SDPBackend.MATH):  # which torch can map over examples
            single = x.dim() == len(self.shape)
            if single:
                alone: Tensor = functional_call(module, state, (x.unsqueeze(0),))
                return alone.squeeze(0)
            scores: Tensor = functional_call(module, state, (x,))
            if len(x) == 1 and scores.dim() < len(self.output_shape) + (self.classes > 1):
                return scores.unsqueeze(0)  # a module that squeezes lost the batch with its size
            return scores

    def data_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one example's output, (), or of each of a batch, (B,)."""
        if self.example_loss is None:
            assert self.objective is not None
            return self.objective.losses(scores.reshape(*y.shape, self.classes), y)
        if self.objective is None:
            decoded = y
        else:
            decoded = self.objective.decoded(y)
        if self.is_one(y):
            return self.example_loss(scores, decoded)
        return of_each(self.example_loss)(scores, decoded)

    @property
    def squared_error(self) -> bool:
        """Whether its loss is `mse`."""
        return self.example_loss is mse

    @property
    def trains_objective(self) -> bool:
        """Whether it has an objective, and its loss is the objective's."""
        return self.example_loss is None

    def random_batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` random examples, of no data: inside the declared values.

        x is uniform in [0, 1), or a whole number below `integers`; y is a class or in [0, 1).
        """
        x = self.random_inputs(count, generator, self.integers)
        return x, self.random_targets(count, generator)

    def _frozen_on(self, device: torch.device) -> dict[str, Tensor]:
        return {name: tensor.to(device) for name, tensor in self.frozen.items()}

    def _build(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.factory()
        places = _places(module)
        with torch.no_grad():
            for name, value in self.start.items():
                places[name].copy_(value)
        return module.to("cpu")

    def _trained(self, module: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return [
            (name, parameter)
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and is_trainable(name, self.trainable)
        ]


def module_model(
    entry: str,
    factory: Factory,
    *,
    shape: tuple[int, ...],
    outputs: int,
    labels: int | None = None,
    loss: Loss | None,
    digest: str = "",
    trainable: Sequence[str] = ("*",),
    start: Mapping[str, Tensor] | None = None,
    regularization: float = 0.0,
    trusted: bool = False,
    objective: Objective | None = None,
    integers: int | None = None,
) -> ModuleModel:
    """Return the model of `factory`'s module, for inputs of `shape` and `outputs` scores.

    outputs: 0 where `loss` takes whatever the module gives. labels: classes of the target, as many
    as outputs if not given; 0: it has none. objective: what a model learns of such a target, if
    not a number; loss: None: the objective's. integers: what an example's whole numbers are below;
    None: it is float32.

    Raises ConfigError, naming the layer or the parameter and what to use instead, for a module that
    cannot be trained privately or at all. Nothing private is touched: all is tried on public
    numbers.
    """
    model = ModuleModel(
        entry,
        shape,
        outputs,
        regularization,
        digest,
        factory,
        loss,
        tuple(trainable),
        dict(start or {}),
        outputs if labels is None else labels,
        trusted,
        integers,
        objective=objective,
    )
    _check_start(entry, model)
    check_layers(entry, model.module)
    if not model.layout:
        raise ConfigError(
            f"model.entry={entry}: has no parameter to train (trainable={list(trainable)})"
        )
    _check_output(entry, model)
    try:
        _check_examples_alone(entry, model)
        _check_steps(entry, model)
        _check_gradients(entry, model)
    except RAISED as error:
        if str(error):
            why = str(error).splitlines()[0]
        else:
            why = ""
        raise ConfigError(
            f"model.entry={entry}: fails on public examples, one at a time: "
            f"{type(error).__name__}: {why}; use layers that look at one example and keep nothing"
        ) from error
    return model


def _places(module: nn.Module) -> dict[str, Tensor]:
    """Return what a file of weights may name: parameters, tied ones by all names, and buffers."""
    parameters = dict[str, Tensor](module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def _check_start(entry: str, model: ModuleModel) -> None:
    places = _places(model.factory())
    for name, value in model.start.items():
        if name not in places or places[name].shape != value.shape:
            has = list(places[name].shape) if name in places else "no such parameter"
            raise ConfigError(f"model.weights: {name} is {list(value.shape)}, the module has {has}")
    loaded = _places(model.module)
    for name, value in model.start.items():
        if not torch.equal(loaded[name], value.to(loaded[name].dtype)):
            raise ConfigError(
                f"model.weights: {name} is one parameter with another of the file, and differs "
                "from it"
            )


def _public(model: ModuleModel, count: int) -> tuple[Tensor, Tensor]:
    return model.random_batch(count, torch.Generator().manual_seed(1))


def _check_output(entry: str, model: ModuleModel) -> None:
    x, _ = _public(model, 2)
    try:
        scores = model.logits(model.init(0), x)
    except FROM_OWN_CODE as error:
        if str(error):
            why = str(error).splitlines()[0]
        else:
            why = type(error).__name__
        raise ConfigError(
            f"model.entry={entry}: does not take a batch of shape {list(x.shape)}: {why}"
            f"{_inputs(model.shape)}"
        ) from error
    if not isinstance(scores, Tensor):
        raise ConfigError(f"model.entry={entry}: gives a {type(scores).__name__}, not a tensor")
    if not model.classes:
        return
    expected = (2, *model.output_shape)
    if tuple(scores.shape) != expected and (expected != (2, 1) or tuple(scores.shape) != (2,)):
        raise ConfigError(
            f"model.entry={entry}: gives {list(scores.shape)} for two examples; expected "
            f"{list(expected)}"
        )


def _inputs(shape: tuple[int, ...]) -> str:
    """Return what a module's inputs have to be where a row is a list of numbers."""
    if len(shape) != 1:
        return ""
    return f" (a row has {shape[0]} numbers here: write that into model.arguments)"


@torch.no_grad()
def _check_examples_alone(entry: str, model: ModuleModel) -> None:
    """Check that an example's output depends on neither its companions nor the time."""
    x, _ = _public(model, 4)
    params = model.init(0)
    together = model.logits(params, x)
    alone = torch.stack([model.logits(params, example) for example in x])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4):
        raise ConfigError(
            f"model.entry={entry}: an example's output depends on the other examples of its "
            f"batch, or on chance; "
            "use layers that look at one example"
        )


def _check_steps(entry: str, model: ModuleModel) -> None:
    """Check that the module takes the same steps for every row, unless their owner trusts it."""
    if model.trusted or model.traced:
        return
    x, y = _public(model, 1)
    recording = recorded(model, "cpu", x.dtype, y.dtype)
    if isinstance(recording, str):
        raise ConfigError(
            f"model.entry={entry}: cannot be shown to take the same steps for every row: "
            f"{recording}; its times and errors could tell a row: write it without (torch.where), "
            'or say model.control_flow="trusted"'
        )


def _check_gradients(entry: str, model: ModuleModel) -> None:
    """Check that every trained parameter gets a gradient from some of a few public examples.

    One that gets none at the start may get some a step later: as a factor of a product whose other
    factor begins at zero, as in a low-rank addition.
    """
    x, y = _public(model, 8)
    start = model.init(1)
    gradients = example_gradients(model, start, x, y).abs().sum(0)
    if not gradients.all():
        aside = torch.randn(model.size, generator=torch.Generator().manual_seed(2))
        gradients += example_gradients(model, start + 0.1 * aside, x, y).abs().sum(0)
    for (name, _), part in zip(
        model.layout, torch.split(gradients, list(model.sizes)), strict=True
    ):
        if not part.any():
            raise ConfigError(
                f"model.entry={entry}: parameter {name} gets no gradient (detach, argmax or not "
                f"used); "
                "freeze it with model.trainable"
            )
