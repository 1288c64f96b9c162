"""What is wrong in a user's own algorithm is told in one line, before anything costs ε."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.project.public_rows import public_rows
from tacit_services.project.tuning import tune, written

from tacit import config
from tacit.algorithms import registry
from tacit.config.definition import Definition
from tacit.errors import ConfigError

RUN = """
run.updates = 12
data.dataset = "digits"
model.name = "logistic"
algorithm.entry = "{module}:Own"
"""
CODE = """
import torch
from tacit.algorithms import (
    AlgorithmRounds, AlgorithmServer, AlgorithmSettings, LocalStepsTask, RoundSettings,
    ServerAlgorithm,
)

class OwnSettings(AlgorithmSettings):
    learning_rate: float = 0.1

class OwnServer(AlgorithmServer):
    def step(self, update, tau):
        self.move(self.params - self.settings.learning_rate * update.vector)

class Own(ServerAlgorithm):
    settings = OwnSettings
    role = OwnServer
"""
MOVE = "self.move(self.params - self.settings.learning_rate * update.vector)"
KEY = "    learning_rate: float = 0.1\n"
STEP = "    def step(self, update, tau):\n        " + MOVE
# Of each broken one: what is replaced, by what, and what the line says.
BROKEN = {
    "shape": (MOVE, "self.move(self.params[:-1])", "shape (649,); a tensor of torch.float32 and"),
    "dtype": (MOVE, "self.move(self.params.double())", "step gave torch.float64"),
    "kind": (MOVE, "self.move(3.0)", "step gave a float"),
    "nan": (MOVE, "self.move(self.params * float('nan'))", "numbers that are not finite"),
    "twice": (MOVE, f"{MOVE}; {MOVE}", "step called move twice"),
    "never": (MOVE, "pass", "1 updates, which make one version by uploads(), made 0"),
    "raises": (
        MOVE,
        "1 / 0",
        "step failed: ZeroDivisionError: division by zero (own_raises.py, line",
    ),
    "exits": (MOVE, "raise SystemExit", "step failed: SystemExit"),
    "saved": (
        "    def step",
        "    saved = ('velocty',)\n    def step",
        "saved: velocty: the server",
    ),
    "tacits_name": (
        "    def step",
        "    saved = ('start',)\n    def step",
        "saved: start: is a name of tacit's own",
    ),
    "json": (
        "    def step",
        "    saved = ('names',)\n    names = {1}\n    def step",
        "saved failed: TypeError: Object of type set is not JSON serializable",
    ),
    "begin": (
        "    def step",
        "    def begin(self):\n        self.x = y\n    def step",
        "begin failed: NameError: name 'y' is not defined (own_begin.py, line",
    ),
    "abstract": (STEP, "    pass", "with abstract method step"),
    "no_role": ("    role = OwnServer\n", "", "has no attribute 'role'"),
    "no_settings": ("    settings = OwnSettings\n", "", "is no algorithm: derive a class from"),
    "searched": (KEY, KEY + "    searched = {'rat': (0, 1)}\n", "searched: rat: there is no key"),
    "searched_kind": (KEY, KEY + "    searched = 5\n", "OwnSettings: searched=5: write a dict"),
    "searched_bounds": (
        KEY,
        KEY + "    searched = {'learning_rate': 5}\n",
        "searched: learning_rate=5: give two numbers",
    ),
    "searched_least": (
        KEY,
        KEY + "    searched = {'learning_rate': (0, 1)}\n",
        "searched: learning_rate=(0, 1): give two numbers",
    ),
    "tacits_key": (KEY, KEY + "    edge: int = 3\n", "edge: is a name of tacit's own"),
    "traits": (KEY, KEY + "    traits: float = 3.0\n", "traits: is a name of tacit's own"),
    "task": (KEY, KEY + "    task: str = 'a'\n", "OwnSettings: task: is a name of tacit's own"),
    "pydantics": (KEY, KEY + "    copy: bool = True\n", "copy: is a name of tacit's own"),
    "annotation": (KEY, KEY + "    more: 'Unknown' = 3\n", "OwnSettings"),
    "required": (KEY, "    learning_rate: float\n", "algorithm.learning_rate: Field required"),
    "computes": (
        KEY,
        KEY + "    def computes(self):\n        return 'text'\n",
        "computes() gave a str; return a task",
    ),
    "task_key": (
        KEY,
        KEY + "    def computes(self):\n        return LocalStepsTask(proximl=1)\n",
        "computes(): proximl=1: unknown key",
    ),
    "uploads": (
        KEY,
        KEY + "    def uploads(self, workers):\n        return 3\n",
        "1 updates made a version, and uploads() says that 3 make one",
    ),
    "uploads_raises": (
        KEY,
        KEY + "    def uploads(self, workers):\n        return workers // 0\n",
        "uploads failed: ZeroDivisionError: integer division or modulo by zero (own_uploads_r",
    ),
    "uploads_none": (
        KEY,
        KEY + "    def uploads(self, workers):\n        pass\n",
        "uploads() gave None; return how many updates make one version",
    ),
    "rounds_uploads": (
        "class OwnSettings(AlgorithmSettings):",
        "class OwnSettings(RoundSettings):\n"
        "    def uploads(self, workers):\n        return workers // 0\n",
        "uploads failed: ZeroDivisionError",
    ),
    "no_init": (
        "    def step",
        "    def __init__(self, definition, model):\n        self.velocity = 0.0\n    def step",
        "OwnServer.__init__ never called super().__init__(definition, model)",
    ),
    "late_init": (
        "    def step",
        "    def begin(self):\n        del self.edges\n    def step",
        "answering an edge failed: AttributeError",
    ),
    "other_role": (
        "class OwnServer(AlgorithmServer):",
        "class OwnServer:\n    def __init__(self, *arguments):\n        pass\n",
        "the server is a OwnServer; derive the class of role from AlgorithmServer",
    ),
    "saved_text": (
        "    def step",
        "    saved = 'first'\n    def step",
        "saved='first': write a tuple of names",
    ),
    "combine": (
        CODE[CODE.index("class OwnSettings") : CODE.index("class Own(")],
        "class OwnSettings(RoundSettings):\n    pass\n\n"
        "class OwnServer(AlgorithmRounds):\n    def combine(self, answers):\n        return None\n\n",
        "combine gave a NoneType",
    ),
}


def defined(folder: Path, module: str, code: str) -> Definition:  # type: ignore[type-arg]
    (folder / f"{module}.py").write_text(code)
    return config.parse(RUN.format(module=module), "test", folder=folder).define()


def begun(folder: Path, module: str, code: str) -> None:
    definition = defined(folder, module, code)
    registry.server(definition, definition.build_model())


@pytest.mark.parametrize("name", BROKEN)
def test_it_is_one_line_that_names_the_place(name: str, tmp_path: Path) -> None:
    old, new, complaint = BROKEN[name]
    assert CODE.count(old) == 1
    with pytest.raises(ConfigError) as caught:
        begun(tmp_path, f"own_{name}", CODE.replace(old, new))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_right_one_begins_where_every_other_run_begins(tmp_path: Path) -> None:
    """The trial's updates are another server's."""
    definition = defined(tmp_path, "right_one", CODE)
    model = definition.build_model()
    role = registry.server(definition, model)
    assert (role.version, len(role.edges)) == (0, 0)
    assert role.params.equal(model.init(definition.run.seed))


def test_more_edges_than_there_are_cannot_be_asked(tmp_path: Path) -> None:
    code = CODE.replace("(AlgorithmSettings)", "(RoundSettings)")
    (tmp_path / "asks.py").write_text(code)
    text = RUN.format(module="asks") + "algorithm.clients = 9\n"
    with pytest.raises(ConfigError, match=r"algorithm\.clients=9 is above edges\.count=5"):
        config.parse(text, "test", folder=tmp_path)


LOCAL = CODE.replace(
    KEY,
    "    learning_rate: float = 0.3\n"
    "    searched = {'learning_rate': (0.1, 1.0)}\n"
    "    def computes(self):\n"
    "        return LocalStepsTask(steps_min=2, learning_rate=self.learning_rate)\n",
).replace(MOVE, "self.move(self.params + update.vector)")


def test_tune_trains_with_the_task_that_the_code_asks_for(tmp_path: Path) -> None:
    """Two local steps a push learn; a gradient taken for a distance would climb."""
    (tmp_path / "local.py").write_text(LOCAL)
    text = RUN.format(module="local").replace("updates = 12", "updates = 150")
    text += "privacy.clip = 1.0\nprivacy.batch = 60\nprivacy.epsilon = 20.0\n"
    run = config.parse(text, "test", folder=tmp_path)
    result = tune(run, public_rows(run, "digits", None, tmp_path), trials=1, seed=1)
    assert (result.best.metric or 0) > 0.6
    # What the run file states for sites is written anew with what was found.
    edge = '{kind = "local steps", learning_rate = 0.3, steps_min = 2}'
    stated = text + f"algorithm.edge = {edge}\n"
    again = written(stated, {"algorithm.learning_rate": 0.5}, tmp_path)
    parsed = config.parse(again, "test", folder=tmp_path)
    assert parsed.algorithm.task().learning_rate == 0.5  # type: ignore[attr-defined]
