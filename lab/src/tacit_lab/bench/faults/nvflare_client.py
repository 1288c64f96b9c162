"""Runs inside NVFlare's venv, as a site's training script by its Client API."""

import argparse
import os

import numpy as np
import numpy_training  # type: ignore[import-not-found]
import nvflare.client as flare  # type: ignore[import-not-found]
from nvflare.app_common.np.constants import NPConstants  # type: ignore[import-not-found]


def main() -> None:
    """Answer each model with the local steps of a round."""
    parser = argparse.ArgumentParser()
    for name in ("steps", "batch", "features", "hidden"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--learning_rate", type=float)
    arguments = parser.parse_args()
    flare.init()
    with np.load(os.environ["FAULTS_ROWS"]) as rows:
        x = rows["x"]
        y = rows["y"]
    form = numpy_training.network(arguments.features, arguments.hidden, 2, seed=1)
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        arrays = numpy_training.apart(model.params[NPConstants.NUMPY_KEY], form)
        arrays = numpy_training.train(
            arrays, x, y, arguments.steps, arguments.batch, arguments.learning_rate
        )
        answer = {NPConstants.NUMPY_KEY: numpy_training.together(arrays)}
        flare.send(flare.FLModel(params=answer, current_round=model.current_round))


if __name__ == "__main__":
    main()
