"""A bar in a notebook: one output that changes, and nothing of it at the end."""

from __future__ import annotations

import io
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from rich.console import Console
from tacit_services.display import live
from tacit_services.display.notebook import NotebookBar


@pytest.fixture
def shell() -> Any:
    """Return a shell of IPython that displays, without a kernel."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.mark.usefixtures("shell")
def test_it_shows_how_far_the_work_is_and_goes() -> None:
    with capture_output() as captured:
        bar = NotebookBar(40)
        bar.show(10, "accuracy <b>90 %</b>")
        bar.close()

    first, later, last = (output.data["text/html"] for output in captured.outputs)
    assert 'max="40" value="0"' in first
    assert 'value="10"' in later
    assert "10/40 accuracy &lt;b&gt;90 %" in later
    assert last == ""
    assert not captured.outputs[0].update
    assert captured.outputs[1].update


def test_a_console_that_is_no_notebook_or_is_quiet_has_none() -> None:
    assert live.notebook_bar(Console(file=io.StringIO(), force_jupyter=False), 9) is None
    assert live.notebook_bar(Console(file=io.StringIO(), force_jupyter=True, quiet=True), 9) is None
