#!/usr/bin/env bash
# The implementation of `./do bench network`: what two hosts get out of the network between them.
#
#   bench/network/run.sh [--rates LIST] [--rounds N] [--only LIST] [--quick] [--json FILE]
#   bench/network/run.sh users [--rates LIST] [--rows LIST] ...
#   bench/network/run.sh one-row [--rates LIST] ...
#
# The second form measures what programs of Megatron-Core, Hugging Face and vLLM gain: see bench/network/users.py. The
# third one measures sums of one row, as a decode makes them: see bench/network/one_row.py.
# PLAIT_PYTHON names a Python that has plait and torch; otherwise it is that of build/venv, as in bench/python/run.sh.
#
# The hosts are network namespaces of this machine (tools/netlab.py), a rank and a processor each, so it needs root.
# LIST of rates: 2gbit,5gbit,10gbit,none. LIST of sections: transfers, operators, losses. --quick: one short round.
# Engines take turns: plait over tcp, and where Open MPI is installed, plait over it and Open MPI's own collective.
# Medians, with the range, are printed beside the bars. Results: build/bench/network.json; bench/report.py puts them
# into docs/lab/hosts.md. BUILD: a build folder other than build/release.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

mkdir -p build/bench
if [[ ${1:-} == users || ${1:-} == one-row ]]; then
  tools/netlab.py --check  # before a wheel is built in vain
  source tools/do/step.sh
  source tools/do/python.sh
  use_wheel
  exec "$PLAIT_PYTHON" -B "bench/network/${1//-/_}.py" --json "build/bench/network-$1.json" "${@:2}"
fi
exec python3 -B bench/network/measure.py --build "${BUILD:-build/release}" --json build/bench/network.json "$@"
