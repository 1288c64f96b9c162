"""Runs inside NVFlare's venv: what a person does at the admin console, by the FLARE API.

`export FOLDER TASK` writes the job, `submit KIT JOB` prints its id, `status KIT ID` its state;
`abort KIT ID` ends it.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import numpy_training  # type: ignore[import-not-found]
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe  # type: ignore[import-not-found]
from nvflare.fuel.flare_api.flare_api import new_secure_session  # type: ignore[import-not-found]

USER = "admin@bench.org"


def export(folder: str, settings: str) -> None:
    """Write the job into `folder`."""
    task = json.loads(settings)
    start = numpy_training.network(task["features"], task["hidden"], 2, seed=1)
    checkpoint = Path(folder, "start.npy").absolute()
    np.save(checkpoint, numpy_training.together(start))
    names = ("steps", "batch", "features", "hidden", "learning_rate")
    recipe = NumpyFedAvgRecipe(
        name="faults",
        initial_ckpt=str(checkpoint),
        min_clients=task["sites"],
        num_rounds=task["rounds"],
        train_script="nvflare_client.py",
        train_args=" ".join(f"--{name} {task[name]}" for name in names),
    )
    recipe.add_client_file("numpy_training.py")
    recipe.export(folder)


def main() -> None:
    """Do one thing."""
    action, place, what = sys.argv[1:]
    if action == "export":
        export(place, what)
        return
    session = new_secure_session(USER, place, timeout=60.0)
    try:
        if action == "submit":
            print(json.dumps({"answer": session.submit_job(what)}))
        elif action == "abort":
            print(json.dumps({"answer": session.abort_job(what)}))
        else:
            print(json.dumps({"answer": session.get_job_meta(what)["status"]}))
    finally:
        session.close()
    sys.stdout.flush()
    os._exit(0)  # its threads outlive the session


if __name__ == "__main__":
    main()
