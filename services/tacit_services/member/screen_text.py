"""The consent screen as text: sections of rows, at most 80 columns wide."""

from __future__ import annotations

import io

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WHO = "Who asks"  # the title of a screen's first part
WIDTH = 80
_LABEL = 12
ScreenRow = tuple[str, str]  # a label, and words
ScreenSections = tuple[tuple[str, tuple[ScreenRow, ...]], ...]  # a title, and rows


def print_sections(sections: ScreenSections, to: Console) -> None:
    """Print a screen, at most 80 columns wide."""
    width = min(to.width, WIDTH)
    for title, rows in sections:
        to.print(Text(title, style="bold"), width=width)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        widest = max(len(label) for label, _ in rows)
        table.add_column(width=_LABEL if widest > 1 else widest)
        table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        to.print(Padding(table, (0, 0, 1, 2)), width=width)


def text_of(sections: ScreenSections) -> str:
    """Return a screen as plain text."""
    written = io.StringIO()
    print_sections(sections, Console(file=written, width=WIDTH, color_system=None, highlight=False))
    return written.getvalue()
