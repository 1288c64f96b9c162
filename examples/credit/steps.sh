#!/bin/sh
# From a CSV to a picture of what drives the score. steps.sh FOLDER: where the results go.
set -eu
here=$(dirname "$0")
out=${1:-out/credit}
rm -rf "$out/model"

tacit run "$here/run.toml" --out "$out/run"
tacit export "$out/model" --run "$out/run"
tacit predict "$out/model" --table "$here/new.csv" --explain --out "$out/reasons.csv"
echo "look at $out/model/functions.svg, and read $out/model/README.md"
