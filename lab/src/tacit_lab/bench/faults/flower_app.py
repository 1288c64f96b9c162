"""Runs inside Flower's venv, as faults_app/client_app.py and server_app.py of a Flower App."""

import os
from pathlib import Path

import numpy as np
from faults_app import numpy_training  # type: ignore[import-not-found]
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # type: ignore[import-not-found]
from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found]
from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Take the local steps of a round."""
    settings = context.run_config
    with np.load(str(context.node_config["rows"])) as rows:
        arrays = numpy_training.train(
            message.content["arrays"].to_numpy_ndarrays(),
            rows["x"],
            rows["y"],
            int(settings["steps"]),
            int(settings["batch"]),
            float(settings["learning-rate"]),
        )
        count = len(rows["y"])
    content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": count})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, and write the model."""
    settings = context.run_config
    start = numpy_training.network(int(settings["features"]), int(settings["hidden"]), 2, seed=1)
    sites = int(settings["sites"])
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=sites)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(start),
        num_rounds=int(settings["rounds"]),
        timeout=float(settings["timeout"]),
    )
    path = Path(os.environ["FAULTS_RESULTS"])
    with path.with_suffix(".part").open("wb") as file:
        np.savez(file, *result.arrays.to_numpy_ndarrays())
    path.with_suffix(".part").rename(path)
