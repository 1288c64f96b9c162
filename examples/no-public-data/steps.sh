#!/bin/sh
# A model of rows that nobody has a public sample of: ask, begin from the answers, train, look.
# steps.sh FOLDER: where the results go.
set -eu
here=$(dirname "$0")
out=${1:-out/no-public-data}
mkdir -p "$out"
rm -rf "$out/clinic" "$out/model"

# 1. Each site answers the questions of run.toml once, at ε = 0.2.
tacit ask "$here/run.toml" --out "$out/ask"

# 2. A run file from the answers. Beside it lie the sites' rows, as each site would have its own.
tacit new "$out/clinic" --answers "$out/ask/answers.json" --target outcome --sites 5 --model logistic
cp "$here"/site?.csv "$out/clinic"
# Less ε than it proposes, and fewer updates, of which each then has less noise.
less='s/^epsilon = 4.0/epsilon = 3.3/; s/^updates = 1000 /updates = 200 /; s/^pushes = 200 /pushes = 40 /'
sed "$less" "$out/clinic/run.toml" > "$out/clinic/run.new"
mv "$out/clinic/run.new" "$out/clinic/run.toml"

# 3. Training, at ε = 3.3.
tacit run "$out/clinic/run.toml" --out "$out/run"

# 4. For the reader alone: how good it is for patients who came later. A federation has no such table.
tacit export "$out/model" --run "$out/run"
tacit predict "$out/model" --table "$here/later.csv" --out "$out/predictions.csv"
python "$here/compare.py" "$here/later.csv" "$out/predictions.csv"
