"""The texts of the files that `tacit new` writes."""

from __future__ import annotations

RUN_FILE = """\
# {title}
# {steps}
# Every key: tacit keys

[run]
name = "{name}"
{steps_of_run}

[data]
{data}

[model]
{model}

[algorithm]
{algorithm}

[privacy]
epsilon = 4.0  # {budget}
delta = 1e-5  # well below 1 / rows
{releases}

[edges]
count = {edges}
{waiting}
[evaluation]
every = {every}  # updates; often, as `stop` looks at these points
{judging}"""
GITIGNORE = """\
# All but what may be public: private rows, ledgers and results stay out of git.
*
!.gitignore
!run.toml
!policy.toml
!README.md
!*.py
!public*
!public/**
"""
POLICY = """\
# What the owner of the data allows, whatever a run file says. A policy can only forbid.
# `tacit run` and `tacit check` obey it beside the run file; `tacit edge` gets it as TACIT_POLICY.
max_epsilon = 4.0
max_delta = 1e-5
mechanisms = ["discrete_gaussian", "gaussian"]

# A bound for life, over all runs: a run of yours may spend no more, and in a federation all runs
# together.
# lifetime_epsilon = 4.0
# lifetime_delta = 1e-5

# Kinds of question that `tacit ask` may ask, or a federation's run; left out: all.
# questions = ["count", "missing"]

# Of a federation alone, as in `tacit join URL --data FILE --policy policy.toml`:
# accept = "ask"                 # "within": what is within this policy is taken unasked
# researchers = ["*"]            # who may ask: names whose keys you have confirmed, as ["ada"]
# code = "never"                 # or the SHA-256 of each file of yours that an offer may run
# columns = ["age", "smoker"]    # what may be read; left out: whatever the data has
# hours = "20:00-06:00"          # when it may work, local time; left out: always
"""
NETS = """\
\"\"\"The network that is trained: any torch.nn.Module that looks at one example at a time.\"\"\"

from torch import nn


class Net(nn.Module):
    \"\"\"One hidden layer. No BatchNorm and no Dropout: they look across examples, or draw.\"\"\"

    def __init__(self, inputs: int, outputs: int, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
        )

    def forward(self, x):
        return self.layers(x)
"""
README_OF_FEDERATION = """\
# {name}

The {row}s stay with the members of a federation; what leaves is noised, and counted.

    tacit submit {name}/run.toml --federation FOLDER   # or --url, --token-file: members are asked
    tacit runs --federation FOLDER                     # who has answered, and how it stands
    tacit results {name} --out out --federation FOLDER
    tacit keys                                         # every key of the run file

What a {row} is, and whose: `run.toml`. Its `rows` is a public number that every member is taken to
have: write yours. Each member's owner has a policy and a ledger of their own.
"""
README = """\
# {name}

The {row}s stay where they are; what leaves is noised, and counted.

    tacit check {name}/run.toml     # data, model and budget, before anything is spent
    tacit run {name}/run.toml       # trains, with ε enforced; results in out/run
    tacit keys                      # every key of the run file

Put the private {row}s into `{train}`. What a {row} is, and whose: `run.toml`. What the owner
allows: `policy.toml`.

The ledger of what was spent lies in `~/.local/share/tacit` (or `$XDG_DATA_HOME/tacit`). Its name
is `data.name` in `run.toml`. It also knows the file's bytes, people and rows, so next month's
export in another folder goes on with it. `tacit check` and `tacit run` say in one line whether a
ledger begins or continues. Another user, or another `$XDG_DATA_HOME`, has other ledgers: look at
that line.
"""
