#!/usr/bin/env bash
# The implementation of `./do bench comm`: measures plait's communication alone, then together with Open MPI if it is
# installed (with its own choice of transport, then with vader), and compares the results with plait's targets.
#
#   bench/comm/run.sh [--quick] [--repetitions N]      results: build/bench/comm*.json
#
# BUILD: a build folder other than build/release.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

programs=${BUILD:-build/release}/bench/comm
results=build/bench
mkdir -p "$results"
rm -f "$results"/comm.json "$results"/comm_mpi_*.json

# beside_mpi NAME MPIRUN_OPTIONS... -- OPTIONS...
beside_mpi() {
  local name=$1 options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  ((EUID != 0)) || options+=(--allow-run-as-root)
  printf '\n== mpirun -np 2 --bind-to core %s\n' "${options[*]}"
  mpirun -np 2 --bind-to core "${options[@]}" \
    "$programs/plait_bench_comm_mpi" --json "$results/comm_mpi_$name.json" "$@"
}

"$programs/plait_bench_comm" --json "$results/comm.json" "$@"
if [[ ! -x $programs/plait_bench_comm_mpi ]] || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  printf '\nOpen MPI is not installed, so there is no comparison.\n'
elif (($(nproc) < 2)); then
  printf '\nThere is only one processor. Two ranks of MPI would spin against each other, so there is no comparison.\n'
else
  beside_mpi default -- "$@"
  beside_mpi vader --mca pml ob1 --mca btl vader,self -- "$@"
fi
python3 -B bench/report.py "$results"/comm*.json
