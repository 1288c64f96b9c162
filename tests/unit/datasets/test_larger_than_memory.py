"""A table that is larger than what its process may allocate is read, kept and trained on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import environment

COLUMNS, BLOCK, BLOCKS = 24, 20_000, 180
ROOM = 256  # MiB that the process may allocate once its libraries are there; the rows are 330
COMMON = """
import resource, sys
from pathlib import Path
from pyarrow import csv
import torch, scipy.stats, dp_accounting.pld.privacy_loss_distribution
from tacit.config import run_file
from tacit.algorithms import registry
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Releaser
from tacit.privacy.noise.randomness import Random
from tacit.protocol.messages import GlobalModel, Push
from tacit.datasets.own import table
torch.set_num_threads(1)
path, keep = Path(sys.argv[1]), Path(sys.argv[2])
definition = run_file.load(path).define()
model = definition.build_model()
torch.zeros(10, 10) @ torch.zeros(10, 10)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + int(sys.argv[3]) * 2**20,) * 2)
"""
TRAIN = (
    COMMON
    + """
part = definition.source.edge(0, None, keep)
releaser = Releaser(definition.plans.plan(0, part.most), Ledger(":memory:", "big"), Random())
edge = registry.edge(definition, "edge-0", part.rows, model, releaser)
(out,) = edge.on_message(GlobalModel(0, model.init(1), 1.0))
assert isinstance(out.message, Push)
print(part.rows.records)
"""
)
READ_WHOLE = COMMON + "print(csv.read_csv(path.parent / 'big.csv').num_rows)\n"
RUN = """
run.updates = 10
data = {{ kind = "table", train = "big.csv", target = "y", rows = {rows}, columns = {{ {columns} }} }}
model.name = "logistic"
algorithm = {{ name = "fedasync", steps_min = 1 }}
privacy = {{ clip = 1.0, batch = 64, pushes = 10 }}
edges.count = 1
"""


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        code,
        str(folder / "run.toml"),
        str(folder / "keep"),
        str(ROOM),
    ]
    # The allocator that arrow has by default takes its room in advance.
    variables = environment(ARROW_DEFAULT_MEMORY_POOL="system")
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


@pytest.mark.exhaustive
def test_a_table_larger_than_memory(tmp_path: Path) -> None:
    names = [f"c{at}" for at in range(COLUMNS)]
    row = ",".join(f"0.{at:02}" for at in range(COLUMNS)) + ",a\n"
    with (tmp_path / "big.csv").open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for _ in range(BLOCKS):
            file.write(row * BLOCK)
    columns = ", ".join(f"{name} = {{ low = 0, high = 1 }}" for name in names)
    columns += ', y = { values = ["a", "b"] }'
    (tmp_path / "run.toml").write_text(RUN.format(rows=BLOCK * BLOCKS, columns=columns))
    process = child(READ_WHOLE, tmp_path)  # the limit binds
    assert process.returncode != 0
    trained = child(TRAIN, tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert int(trained.stdout) == BLOCK * BLOCKS
    assert (tmp_path / "keep" / "rows" / "x.f32").stat().st_size > ROOM * 2**20
