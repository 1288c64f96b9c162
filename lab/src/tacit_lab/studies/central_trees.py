"""Runs inside the venv of `interpret-core` and `xgboost`: trees on all rows at one place.

Arguments: a file of arrays, as `tables` writes it, and cases as JSON. For each case it prints a
line of JSON with the AUC on the test rows. It imports nothing of tacit.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import xgboost  # type: ignore[import-not-found]
from interpret.privacy import DPExplainableBoostingClassifier  # type: ignore[import-not-found]
from sklearn.metrics import log_loss, roc_auc_score  # type: ignore[import-not-found]


def main() -> None:
    """Fit and judge each case."""
    with np.load(sys.argv[1]) as arrays:
        table = dict(arrays)
    for case in json.loads(sys.argv[2]):
        began = time.process_time()
        if case["model"] == "XGBoost":
            p = boosted(table)
        else:
            p = additive(table, case["epsilon"], case["seed"])
        measured = {
            "auc": round(float(roc_auc_score(table["test_y"], p)), 5),
            "log_loss": round(float(log_loss(table["test_y"], p)), 5),
            "seconds": round(time.process_time() - began, 1),
        }
        print(json.dumps(case | measured), flush=True)


def boosted(table: dict[str, Any]) -> Any:
    """Return the probabilities of XGBoost, without privacy."""
    model = xgboost.XGBClassifier(n_estimators=300, max_depth=5, learning_rate=0.05, n_jobs=1)
    model.fit(table["train_x"], table["train_y"])
    return model.predict_proba(table["test_x"])[:, 1]


def additive(table: dict[str, Any], epsilon: float, seed: int) -> Any:
    """Return the probabilities of DP-EBM by its defaults, within the same public bounds."""
    numeric = table["low"] < table["high"]
    train, test = (_frame(table[key], numeric) for key in ("train_columns", "test_columns"))
    bounds = {
        int(place): (float(table["low"][place]), float(table["high"][place]))
        for place in np.flatnonzero(numeric)
    }
    model = DPExplainableBoostingClassifier(
        feature_types=["continuous" if each else "nominal" for each in numeric],
        epsilon=epsilon,
        delta=1e-5,
        privacy_bounds=bounds,
        random_state=seed,
        n_jobs=1,
    )
    model.fit(train, table["train_y"])
    return model.predict_proba(test)[:, 1]


def _frame(columns: Any, numeric: Any) -> Any:
    return pd.DataFrame(
        {
            str(place): column if numeric[place] else column.astype(int).astype(str)
            for place, column in enumerate(columns.T)
        }
    )


if __name__ == "__main__":
    main()
