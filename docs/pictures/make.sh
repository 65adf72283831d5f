#!/usr/bin/env bash
# Draws the pictures of docs/concepts/ anew, on this machine: timelines of two ranks, by plait itself. (bars.py draws
# those of docs/performance.md.)
#
#   docs/pictures/make.sh                  all of them
#   docs/pictures/make.sh product_last     one of them
#
# They show what is measured now: let nothing else run meanwhile. A caption names the machine, the link and the day.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
plait=${BUILD:-$here/../../build/release}/app/cli/plait
wanted=${1:-}
drawn=0

# NAME OPERATOR OPTIONS...: over an emulated link on which what travels takes as long as the product.
draw() {
  [[ -z $wanted || $wanted == "$1" ]] || return 0
  local link=(--link ratio=1)
  [[ $2 != experts ]] || link=(--ratio 1)
  "$plait" trace "${@:2}" --ranks 2 "${link[@]}" --svg "$here/$1.svg"
  drawn=1
}

draw overlap matmul-all-reduce --m 512 --n 4096 --k 4096 --schedule fused
draw product_first matmul-reduce-scatter --m 512 --n 4096 --k 4096 --parts 4
draw product_last all-gather-matmul --m 1024 --n 2048 --k 4096 --parts 4
draw plans matmul-all-reduce --m 512 --n 4096 --k 4096 \
  --plan 'pipelined parts=4;pipelined parts=16;fused chunk=1024;fused'
draw experts experts --model gpt-oss-quarter --tokens 512 --skew 4:1 --threads 1
draw sequences matmul-all-to-all --m 2048 --n 1280 --k 512 --heads 32,4 --parts 4 --threads 1

if [[ $drawn == 0 ]]; then
  printf 'there is no picture called %s\n' "$wanted" >&2
  exit 2
fi
