"""A user's own algorithm in a run file: its entry, its settings, its code, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tacit import config
from tacit.algorithms import LocalRule, OwnStepsTask, registry
from tacit.algorithms.own.own_steps import plain_tensor
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.errors import ConfigError
from tests.unit.conformance.test_suite import RIGHT, RULED

RUN = """
run.updates = 12
data.dataset = "digits"
model.name = "logistic"
privacy.batch = 32
"""


def parsed(folder: Path, *keys: str, code: str = RIGHT) -> RunFile:
    (folder / "own.py").write_text(code)
    return config.parse(RUN + "\n".join(keys), "test", folder=folder)


ENTRY = 'algorithm.entry = "own:Own"'


def test_its_defaults_and_its_keys(tmp_path: Path) -> None:
    run = parsed(tmp_path, ENTRY, "algorithm.learning_rate = 1")
    assert (run.algorithm.name, run.privacy.clip) == ("own:Own", 2.0)
    assert run.define().traits.counted == "updates"
    section: Any = run.algorithm
    assert (section.learning_rate, section.max_staleness, len(section.code)) == (1.0, 100, 64)


def test_a_name_with_a_colon_is_an_entry(tmp_path: Path) -> None:
    named = parsed(tmp_path, 'algorithm.name = "own:Own"')
    assert named.fingerprint() == parsed(tmp_path, ENTRY).fingerprint()


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ((ENTRY, "algorithm.learnin_rate = 1"), "algorithm.learnin_rate=1: unknown key"),
        ((ENTRY, 'algorithm.learning_rate = "a"'), "algorithm.learning_rate='a': "),
        ((ENTRY, "algorithm.learning_rate = inf"), "learning_rate=inf: use text, a finite number"),
        ((ENTRY, 'algorithm.name = "mapa"'), "name and entry: state one of them"),
        (('algorithm.entry = "own"',), "algorithm.entry='own': expected"),
        (('algorithm.entry = "other:Own"',), "algorithm.entry=other:Own: no module other"),
        (('algorithm.entry = "own:Other"',), "algorithm.entry=own:Other: own has no class"),
        ((ENTRY, 'privacy.mechanism = "paper"'), "privacy.mechanism=paper: "),
        ((ENTRY, f'algorithm.code = "{"0" * 64}"'), "the code of own:Own here has SHA-256"),
        ((ENTRY, 'algorithm.edge = {kind = "local steps"}'), "the algorithm's code asks for"),
        ((ENTRY, 'algorithm.edge = {kind = "guesses"}'), "algorithm.edge.kind='guesses': "),
        ((ENTRY, "algorithm.edge = {steps_min = 2}"), "algorithm.edge.kind: Field required"),
        (
            (ENTRY, 'algorithm.edge = {kind = "local steps", steps_min = 0}'),
            "algorithm.edge.steps_min=0: ",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    tmp_path: Path, keys: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, *keys)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_journal_names_the_same_run_without_running_the_code(tmp_path: Path) -> None:
    run = parsed(tmp_path, ENTRY, "algorithm.learning_rate = 1")
    (tmp_path / "own.py").unlink()
    again = RunFile.model_validate_json(run.model_dump_json(), context={"folder": tmp_path})
    assert again.fingerprint() == run.fingerprint()
    with pytest.raises(ConfigError, match="no module own beside the run file"):
        registry.server(again.define(), again.build_model())


def test_a_run_is_not_continued_with_other_code(tmp_path: Path) -> None:
    run = parsed(tmp_path, ENTRY)
    again = RunFile.model_validate(run.model_dump(), context={"folder": tmp_path})
    role = registry.server(again.define(), again.build_model())
    assert torch.equal(role.params, registry.server(run.define(), run.build_model()).params)
    other = parsed(tmp_path, ENTRY, code=RIGHT.replace("0.9", "0.8"))
    assert other.fingerprint() != run.fingerprint()
    assert other.agreed() == run.agreed()
    with pytest.raises(ConfigError, match=r"algorithm\.code=.* the code of own:Own here"):
        registry.server(again.define(), again.build_model())


def test_the_guard_bounds_gradients_and_watches_distances(tmp_path: Path) -> None:
    """Bounds on lengths are of gradients; laws are of both built-in tasks, and of no rule."""
    assert parsed(tmp_path, ENTRY, "guard.norm_factor = 1.5", "guard.sums = true")
    ruled = RULED.format(module="own")
    for key in ("guard.norm_factor = 1.5", "guard.sums = true"):
        with pytest.raises(ConfigError, match=key.partition(" ")[0]):
            parsed(tmp_path, ENTRY, key, code=ruled)


def test_a_rule_sees_no_gradient_without_noise(tmp_path: Path) -> None:
    keys = ("privacy.noise_at = 'server'", "privacy.mechanism = 'gaussian'")
    with pytest.raises(ConfigError, match=r"privacy\.noise_at=server: an own rule of local steps"):
        parsed(tmp_path, ENTRY, *keys, code=RULED.format(module="own"))


def test_a_site_states_the_code_of_the_rule_that_it_runs(tmp_path: Path) -> None:
    host = parsed(tmp_path, ENTRY, code=RULED.format(module="own"))
    section: Any = host.algorithm
    edge = 'algorithm.edge = {{kind = "own steps", entry = "own:Rule", steps = 2, {}}}'
    stated = (ENTRY, "privacy.pushes = 10", "privacy.clip = 2.0")
    site = tmp_path / "site"
    site.mkdir()
    keys = "keys = {rate = 0.1}"
    with pytest.raises(ConfigError, match=r"must state algorithm\.edge\.code"):
        config.parse(RUN + "\n".join((*stated, edge.format(keys))), "test", folder=site)
    code = f'{keys}, code = "{section.code}"'
    run = config.parse(RUN + "\n".join((*stated, edge.format(code))), "test", folder=site)
    task = run.algorithm.task()  # type: ignore[attr-defined]
    (site / "own.py").write_text(RULED.format(module="own").replace("0.5", "0.6"))
    with pytest.raises(ConfigError, match=r"algorithm\.edge\.code=.* the code of own:Rule here"):
        task.rule(site)
    (site / "own.py").write_text(RULED.format(module="own"))
    rule = task.rule(site)
    moved = rule.step(torch.zeros(3), torch.ones(3), torch.zeros(3), 0)
    assert torch.allclose(moved, torch.full((3,), -0.1))


def rule_of(entry: str, folder: Path, **keys: object) -> LocalRule:
    return OwnStepsTask.model_validate({"kind": "own steps", "entry": entry, "keys": keys}).rule(
        folder
    )


@pytest.mark.parametrize("entry", ["numpy:load", "torch.hub:load", "own:RULES", "own:OwnServer"])
def test_only_a_rule_beside_the_run_file_is_ever_called(entry: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(RULED.format(module="own") + "\nRULES = print\n")
    with pytest.raises(ConfigError, match=r"is no class derived from tacit\.algorithms\.LocalRule"):
        rule_of(entry, tmp_path, file="rows.npy")


def test_a_tensor_of_another_class_sees_no_private_number() -> None:
    class Spy(torch.Tensor):
        pass

    params = torch.zeros(3)
    for moved in (params.as_subclass(Spy), params.to_sparse(), None):
        with pytest.raises(ConfigError, match="return a plain tensor"):
            plain_tensor("own:Rule", moved, params)
    with pytest.raises(ConfigError, match="not finite"):
        plain_tensor("own:Rule", params / 0, params)
    asked = torch.ones(3, requires_grad=True)
    plain = plain_tensor("own:Rule", asked, params)
    assert not plain.requires_grad
    assert plain.data_ptr() != asked.data_ptr()


def test_a_rule_is_part_of_what_everybody_agrees_on(tmp_path: Path) -> None:
    """The algorithm's file does not import the rule's."""
    rule, rest = RULED.format(module="rules").split("class OwnSettings", 1)
    (tmp_path / "rules.py").write_text(rule)
    code = rule.partition("class Rule")[0] + "class OwnSettings" + rest
    first = parsed(tmp_path, ENTRY, code=code)
    (tmp_path / "rules.py").write_text(rule.replace("0.5", "0.6"))
    other = parsed(tmp_path, ENTRY, code=code)
    assert first.agreed() != other.agreed()
    assert first.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "edge", ['{kind = "gradient", counts_clipped = true}', '{kind = "tree sums"}']
)
def test_a_site_refuses_a_task_that_does_not_fit_its_noise(edge: str, tmp_path: Path) -> None:
    keys = (
        ENTRY,
        f"algorithm.edge = {edge}",
        "privacy.pushes = 10",
        "privacy.clip = 1.0",
        'privacy.noise_at = "server"',
        'privacy.mechanism = "gaussian"',
    )
    text = RUN if "gradient" in edge else RUN.replace("privacy.batch = 32\n", "")
    with pytest.raises(ConfigError, match=r"at the server|noise_at=server"):
        config.parse(text + "\n".join(keys), "test", folder=tmp_path)


def test_a_journal_with_the_default_of_pushes_is_read(tmp_path: Path) -> None:
    run = parsed(tmp_path, ENTRY, "privacy.pushes = 1000")
    again = RunFile.model_validate(differences(run), context={"folder": tmp_path})
    assert again.fingerprint() == run.fingerprint()


def test_an_edge_runs_no_task_that_is_not_tacits(tmp_path: Path) -> None:
    own = RIGHT.replace(
        "class OwnSettings(AlgorithmSettings):",
        "from tacit.algorithms import GradientTask\n\nclass Mine(GradientTask):\n    pass\n\n"
        "class OwnSettings(AlgorithmSettings):\n    def computes(self):\n        return Mine()\n",
    )
    with pytest.raises(ConfigError, match=r"computes\(\) gave a Mine; return a task"):
        parsed(tmp_path, ENTRY, code=own)


@pytest.mark.parametrize("name", ['["x"]', "{a = 1}", "3"])
def test_a_name_that_is_no_text_is_not_known(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.name.*is not known"):
        parsed(tmp_path, f"algorithm.name = {name}")
