#!/usr/bin/env bash
# Runs `./do bench python`: the Python package beside torch and gloo, and what a call from Python costs.
#
#   bench/python/run.sh [--seconds S] [--rounds N] [--ranks N] [--hidden H] [--only LIST] [--json FILE]
#   bench/python/run.sh users [TABLE...] [--capped] ...
#
# The second form measures what users of Megatron-Core, Hugging Face models and vLLM gain: see bench/python/users.py.
#
# LIST: collectives, layers, call, experts, import, packing; or wheel, alone: how long `pip wheel` takes from a clean
# clone on two cores, which is minutes. Contenders take turns in one process; medians are printed, beside the least that
# is wanted. For "bf16 without AVX-512" on a processor that has it, cap all four libraries. Steps of torch then take
# minutes: measure one round.
#
#   PLAIT_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 ATEN_CPU_CAPABILITY=avx2 \
#     bench/python/run.sh --only layers --seconds 0 --rounds 1
#
# PLAIT_PYTHON names a Python that has plait and torch. Otherwise it is that of build/venv, with the wheel of the
# release build. Results: build/bench/python.json, python-wheel.json and users.json; bench/report.py puts the
# first two into docs/lab/python.md.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

if [[ " $* " == *' --only wheel '* ]]; then
  exec bench/python/wheel.sh build/bench/python-wheel.json "${PLAIT_PYTHON:-python3}"
fi
cpp_call=()
if [[ -z ${PLAIT_PYTHON:-} ]]; then
  source tools/do/step.sh
  source tools/do/python.sh
  use_wheel
  step 'call from C++' ninja -C build/release plait_bench_call
  cpp_call=(--cpp-call "$(find build/release -name plait_bench_call -type f -executable)")
fi

mkdir -p build/bench
if [[ ${1:-} == users ]]; then
  exec "$PLAIT_PYTHON" bench/python/users.py --json build/bench/users.json "${@:2}"
fi

ranks=2
arguments=()
while (($# > 0)); do
  case $1 in
    --ranks) ranks=$2; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$PLAIT_PYTHON" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
  bench/python/measure.py --json build/bench/python.json "${cpp_call[@]}" "${arguments[@]}"
