#!/usr/bin/env bash
# Runs the checks that need a GPU, in a folder made by `./do gpu pack`, where this file is called run.sh. It needs the
# driver and a system whose C and C++ libraries are not older than those of the system that made the folder.
#
#   ./run.sh [WORD...]   all checks, or those whose names contain one of the words
#
# Status: 0 all have passed, 1 some have failed, 77 there is no GPU. Logs are in log/.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
# shellcheck source=tools/do/step.sh
source ./step.sh
# shellcheck source=tools/do/gpu.sh
source ./gpu.sh

logs=log
gpu_words=("$@")
need_gpu
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PLAIT_PLUGIN_PATH=$PWD/lib/plait
step 'programs start' bin/plait info
run_gpu_checks bin bin/plait
((${#rows[@]} > 0)) || usage_error "no check's name contains $*"
show_gpu_findings
summary
