#!/usr/bin/env bash
# What `./do bench comm` does: measures plait's communication alone, then beside Open MPI where there is one
# (with its own choice of transport and with vader, whichever is faster), and says how the figures stand to
# those that plait promises.
#
#   bench/comm/run.sh [--quick] [--repetitions N]      results: build/bench/comm*.json
#
# BUILD names another build folder than build/release.
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
  printf '\nThere is no Open MPI here to compare with.\n'
elif (($(nproc) < 2)); then
  printf '\nOne processor only: two ranks of MPI would spin against each other, so they were not compared.\n'
else
  beside_mpi default -- "$@"
  beside_mpi vader --mca pml ob1 --mca btl vader,self -- "$@"
fi
python3 bench/comm/report.py "$results"/comm*.json
