"""A trained model as one folder: written, read back, and used.

>>> from pathlib import Path
>>> from tacit import exported
>>> def classes(folder: str, table: str) -> list[str | float]:
...     model = exported.read(Path(folder))
...     return [one.value for one in exported.predict(model, "table", Path(table))]
"""

from tacit.exported.flattening import flatten
from tacit.exported.model_folder import (
    Exported,
    TrainedModel,
    export,
    is_exported,
    option_of_rows,
    read,
    run_of,
    trained,
)
from tacit.exported.predictions import (
    RowPrediction,
    RowsKind,
    column_of,
    explaining,
    fixed_form,
    gives_words,
    predict,
    strangers,
)

__all__ = [
    "Exported",
    "RowPrediction",
    "RowsKind",
    "TrainedModel",
    "column_of",
    "explaining",
    "export",
    "fixed_form",
    "flatten",
    "gives_words",
    "is_exported",
    "option_of_rows",
    "predict",
    "read",
    "run_of",
    "strangers",
    "trained",
]
