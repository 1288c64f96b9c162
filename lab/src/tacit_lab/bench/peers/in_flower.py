"""Flower's simulation of the same clients, in its own venv: `in_flower.py ROWS.npz CLIENTS BATCH`.

Each client takes one plain step of its own rows in a round, and Flower's FedAvg averages the models
of all. A line "round" is printed when a round's models are in: as many updates as clients.
"""

import sys
from functools import lru_cache

import flwr  # type: ignore[import-not-found]
import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict  # type: ignore[import-not-found]
from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
from flwr.serverapp import ServerApp  # type: ignore[import-not-found]
from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]
from flwr.simulation import run_simulation  # type: ignore[import-not-found]

FILE = sys.argv[1]
CLIENTS = int(sys.argv[2])
BATCH = int(sys.argv[3])
FOR_EVER = 10**6  # rounds
client = ClientApp()
server = ServerApp()


def network() -> torch.nn.Sequential:
    """Return the network of the reference testbed: 12,752 parameters."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 10, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(10, 10, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(160, 62),
    )


@lru_cache
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all rows; they are read once in a process."""
    torch.set_num_threads(1)
    with np.load(FILE) as file:
        return torch.from_numpy(file["x"]), torch.from_numpy(file["y"])


@client.train()
def train(message, context):  # type: ignore[no-untyped-def]
    """Take one step on a random batch of the client's own rows."""
    (x, y), model = rows(), network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    positions = torch.arange(int(context.node_config["partition-id"]), len(y), CLIENTS)
    index = positions[torch.randint(len(positions), (BATCH,))]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(model(x[index]), y[index])
    torch.autograd.backward(loss)
    optimizer.step()
    answer = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": BATCH}),
    }
    return flwr.app.Message(content=RecordDict(answer), reply_to=message)


class Counted(FedAvg):  # type: ignore[misc]
    """FedAvg that prints a line when a round's models are in."""

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        """Return the average, and print a line a round."""
        average = super().aggregate_train(server_round, replies)
        sys.stdout.write("round\n")
        sys.stdout.flush()
        return average


@server.main()
def serve(grid, context):  # type: ignore[no-untyped-def]
    """Run rounds of all clients, without evaluation."""
    everybody = {"min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
    strategy = Counted(fraction_train=1.0, fraction_evaluate=0.0, **everybody)
    start = ArrayRecord(network().state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=FOR_EVER)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, CLIENTS, backend_config=resources)
