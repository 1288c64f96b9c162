"""Progress and pictures in a notebook, which has no terminal to draw a bar on."""

from __future__ import annotations

import html

from IPython.core.getipython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from IPython.display import HTML, display


class NotebookBar:
    """A bar in the output of the cell that is running, which goes when the work is done."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = display(HTML(self._drawn(0, "")), display_id=True)

    def show(self, completed: int, words: str) -> None:
        """Draw that `completed` of the total is done, and words beside it, which may be others'."""
        self._shown.update(HTML(self._drawn(completed, words)))

    def close(self) -> None:
        """Take the bar away."""
        self._shown.update(HTML(""))

    def _drawn(self, completed: int, words: str) -> str:
        return (
            f'<progress max="{self._total}" value="{completed}"></progress> '
            f"{completed}/{self._total} {html.escape(words)}"
        )


def draw_figures() -> None:
    """Make the notebook draw matplotlib's figures also where nobody has imported pyplot."""
    shell = get_ipython()
    if shell is not None:
        select_figure_formats(shell, {"png"})
