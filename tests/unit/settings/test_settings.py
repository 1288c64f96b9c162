"""Settings.

What is wrong in the environment is said in one line that names the variable and its value.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tacit_services.settings import AggregatorSettings, EdgeSettings, load_policy, read_settings
from tacit_services.transport.address import split_host_port

from tacit.errors import ConfigError, DataError
from tests.helpers.run_files import Layer, toml

RUN_FILE: Layer = {"run": {"updates": 10}, "algorithm": {"name": "mapa"}, "privacy": {"batch": 32}}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Remove every TACIT_ variable but the run file's."""
    for name in [name for name in os.environ if name.startswith("TACIT_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "run.toml"
    path.write_text(toml(RUN_FILE))
    monkeypatch.setenv("TACIT_RUN_FILE", str(path))
    return path


def test_a_salt_that_everybody_knows_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("tacit.test")
    read_settings(EdgeSettings).judge_salt(log, own=False)
    assert "TACIT_SALT is not set, and 'tacit' is no secret" in caplog.text
    caplog.clear()
    monkeypatch.setenv("TACIT_SALT", "a secret")
    read_settings(EdgeSettings).judge_salt(log, own=True)
    assert caplog.text == ""
    monkeypatch.delenv("TACIT_SALT")
    with pytest.raises(ConfigError, match="TACIT_SALT: not set; it is the secret"):
        read_settings(EdgeSettings).judge_salt(log, own=True)


def test_defaults_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_BROKER", "broker.example:8883")
    monkeypatch.setenv("TACIT_IDENTITY", "4")
    settings = read_settings(EdgeSettings)
    assert (settings.broker, settings.identity, settings.device) == (
        "broker.example:8883",
        4,
        "cpu",
    )


def test_an_argument_wins_and_none_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_RUN_ID", "from-environment")
    assert read_settings(EdgeSettings, run_id="given").run_id == "given"
    assert read_settings(EdgeSettings, run_id=None).run_id == "from-environment"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("BROKER", "localhost", "expected HOST:PORT"),
        ("BROKER", "localhost:", "expected HOST:PORT"),
        ("BROKER", "localhost:70000", "expected HOST:PORT"),
        ("BROKER", ":1883", "expected HOST:PORT"),
        ("RUN_ID", "a/b", "pattern"),
        ("RUN_ID", "+", "pattern"),
        ("RUN_ID", "", "pattern"),
        ("EDGES", "many", "valid integer"),
        ("EDGES", "0", "greater than 0"),
        ("SEED", "-1", "greater than or equal to 0"),
        ("CHUNK", "1000", "greater than or equal to 1024"),
        ("CHUNK", "1e9", "valid integer"),
        ("THREADS", "0", "greater than or equal to 1"),
        ("THREADS", "99999999999", "less than or equal to 1024"),
        ("PATIENCE", "nan", "greater than 0"),
        ("PATIENCE", "0", "greater than 0"),
        ("LOG", "loud", "'debug', 'info' or 'warning'"),
        ("IDENTITY", "-1", "greater than or equal to 0"),
    ],
)
def test_a_wrong_value_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(f"TACIT_{name}", value)
    with pytest.raises(ConfigError) as failure:
        read_settings(EdgeSettings)
    message = str(failure.value)
    assert message.startswith(f"TACIT_{name}={value!r}: ")
    assert why in message
    assert "\n" not in message


def test_all_problems_are_in_the_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_HTTP", "nowhere")
    monkeypatch.setenv("TACIT_LINGER", "perhaps")
    with pytest.raises(ConfigError) as failure:
        read_settings(AggregatorSettings)
    assert "TACIT_HTTP='nowhere'" in str(failure.value)
    assert "TACIT_LINGER='perhaps'" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_run_file_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_RUN_FILE")
    with pytest.raises(ConfigError, match="TACIT_RUN_FILE=None: Field required"):
        read_settings(EdgeSettings)


def test_the_run_file_is_loaded_with_what_the_environment_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TACIT_EDGES", "3")
    monkeypatch.setenv("TACIT_SEED", "7")
    run = read_settings(EdgeSettings).load_run()
    assert (run.edges.count, run.run.seed) == (3, 7)


def test_the_first_run_file_whose_data_is_there(environment: Path, tmp_path: Path) -> None:
    other = tmp_path / "mnist.toml"
    other.write_text(toml(RUN_FILE, data={"dataset": "mnist"}))
    empty = tmp_path / "data"
    empty.mkdir()
    settings = read_settings(EdgeSettings, run_file=f"{other}:{environment}", data=empty)
    assert settings.load_run().source.name == "digits"
    with pytest.raises(DataError, match="the data of none of them is in"):
        read_settings(EdgeSettings, run_file=f"{other}:{other}", data=empty).load_run()


def test_a_run_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run file .*missing\.toml: .*No such file"):
        read_settings(EdgeSettings, run_file=str(tmp_path / "missing.toml")).load_run()


def test_without_a_policy_file_everything_is_as_the_run_file_says(tmp_path: Path) -> None:
    free = load_policy(read_settings(EdgeSettings).policy)
    assert free.noise_at == ("edge", "server")
    stated = {"noise_at", "accept", "lifetime_delta", "researchers", "code"}
    assert all(value is None for name, value in free if name not in stated)
    file = tmp_path / "policy.toml"
    file.write_text("max_epsilon = 3.0")
    strict = load_policy(read_settings(EdgeSettings, policy=file).policy)
    assert (strict.max_epsilon, strict.noise_at) == (3.0, ("edge",))
    file.unlink()
    with pytest.raises(ConfigError, match=r"policy .*policy\.toml: .*No such file"):
        load_policy(read_settings(EdgeSettings, policy=file).policy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:1883", ("localhost", 1883)),
        ("[::1]:8883", ("::1", 8883)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
    ],
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text) == expected
