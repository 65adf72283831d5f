#!/usr/bin/env bash
# How long does `pip wheel` take from a clean clone, on two cores? Called by run.sh --only wheel.
#
#   bench/python/wheel.sh JSON [PYTHON]
#
# The clone is of the last commit. Nothing of an earlier build is used: no ccache, and an environment of pip's own for
# the build, whose packages it gets from the registry.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

json=$1 python=${2:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [[ -n $(git status --porcelain) ]]; then
  echo 'wheel: what is not committed is left out' >&2
fi
git clone --quiet --no-local --depth 1 "file://$PWD" "$folder/plait"

# The first two cores that this process may use.
cores=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep=",")')
begin=$(date +%s.%N)
env -u CMAKE_CXX_COMPILER_LAUNCHER -u CMAKE_C_COMPILER_LAUNCHER CCACHE_DISABLE=1 \
  taskset -c "$cores" "$python" -m pip wheel --quiet --no-deps -w "$folder/wheels" "$folder/plait"
end=$(date +%s.%N)

python3 -B - "$json" "$begin" "$end" "$cores" <<'PROGRAM'
import sys
from pathlib import Path

sys.path.insert(0, "bench")
import conditions
import report

file, begin, end, cores = sys.argv[1:]
row = {"table": "The wheel", "what": {"what": "wheel from a clean clone"},
       "values": {"plait": float(end) - float(begin)}, "unit": "s", "bar": {"at most": 360.0}}
report.write(Path(file), {"conditions": {**conditions.now(), "cores": len(cores.split(","))}, "rows": [row]})
print(report.Results([Path(file)]).text())
PROGRAM
