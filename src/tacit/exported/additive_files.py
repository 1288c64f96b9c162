"""The files of a model's folder that show an additive model to people."""

from __future__ import annotations

from tacit.exported.column_functions import BINS, ColumnFunctions
from tacit.exported.functions_card import PICTURE
from tacit.exported.functions_picture import picture


def files_of_functions(functions: ColumnFunctions) -> dict[str, bytes]:
    """Return the table of bins and the picture, by the names of their files."""
    return {BINS: functions.as_csv().encode(), PICTURE: picture(functions).encode()}
