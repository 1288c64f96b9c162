"""Locks on files: who waits, who is refused, and how long a lock lasts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import file_lock
from tacit.errors import ConfigError
from tests.helpers.servers import PATIENCE

# Holds the lock of its first argument, in the way of its second, until its input ends.
HOLDER = """
import sys
from pathlib import Path
from tacit import file_lock

with file_lock.locked(Path(sys.argv[1]), shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path, way: str, *, inherits: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """Start a process that holds the lock, and wait until it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=inherits,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    ("way", "refuses_alone", "refuses_shared"), [("alone", True, True), ("shared", True, False)]
)
def test_a_lock_refuses_whom_it_is_against_until_its_process_was_killed(
    tmp_path: Path, way: str, refuses_alone: bool, refuses_shared: bool
) -> None:
    path = tmp_path / "lock"
    refusal = ConfigError("another has it")
    with holder(path, way) as process:
        for shared, refuses in ((False, refuses_alone), (True, refuses_shared)):
            assert file_lock.is_held(path, shared=not shared) == refuses
            if refuses:
                with (
                    pytest.raises(ConfigError, match="another has it"),
                    file_lock.locked(path, refusal, shared=shared),
                ):
                    pytest.fail("it was not refused")
        process.kill()
        process.wait(PATIENCE)
    assert not file_lock.is_held(path)
    assert not file_lock.is_held(path, shared=True)
    with file_lock.locked(path, refusal):
        assert file_lock.is_held(path)


def test_a_lock_is_waited_for_where_nothing_refuses(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with file_lock.locked(path):
        waiting = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path), "alone"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.0)
    assert waiting.communicate(timeout=PATIENCE)[0] == "held\n"


def test_a_child_that_inherits_the_file_has_its_lock_as_well(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert file_lock.INHERITED
    with file_lock.locked(path) as file:
        child = holder(tmp_path / "other", "alone", inherits=(file.fileno(),))
    try:
        assert file_lock.is_held(path)
    finally:
        child.communicate(timeout=PATIENCE)
    assert not file_lock.is_held(path)


def test_nobody_has_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert not file_lock.is_held(tmp_path / "lock")
    assert not file_lock.is_held(tmp_path / "lock", shared=True)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_when_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        file_lock.take(descriptor)
        assert file_lock.is_held(path)
        file_lock.release(descriptor)
        assert not file_lock.is_held(path)
    finally:
        os.close(descriptor)


def test_a_descriptor_of_no_file_is_said(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file_lock.take(descriptor)


def test_the_library_of_locks_brings_no_other_with_it() -> None:
    code = (
        "import sys; from tacit import file_lock; print('redis' in sys.modules); "
        "from portalocker import redis; print(redis.RedisLock.__name__)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert completed.stdout.split() == ["False", "RedisLock"]
