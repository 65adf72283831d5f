#!/usr/bin/env bash
# What `./do demo` ends with: two layers of LLaMA2-70B over two ranks, a quarter as wide and deep, first in this host's
# shared memory, then over an emulated link of 10 Gbit/s, and one of them over a link that is as slow as the product is
# here, whatever this processor can do.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
plait=${BUILD:-build/release}/src/cli/plait

measure() {
  printf '\n== %s\n\n' "$1"
  "$plait" bench "${@:2}" --ranks 2 --parts 4 --seconds 0.3
}

printf '\nTwo ranks share a layer of LLaMA2-70B (widths a quarter of the real ones, bf16, 512 tokens).\n'
mlp=(matmul-all-reduce --m 512 --n 2048 --k 7168)
attention=(all-gather-matmul --m 512 --n 2560 --k 2048)
measure 'the end of the MLP, in shared memory: the transfer is work for the same cores' "${mlp[@]}"
measure 'the end of the MLP, over an emulated link: the transfer needs no core' "${mlp[@]}" --link 10gbit,5us
measure 'the beginning of the attention, in shared memory' "${attention[@]}"
measure 'the beginning of the attention, over an emulated link' "${attention[@]}" --link 10gbit,5us
measure 'the end of the MLP, over a link as slow as the product: what there is to hide at most' "${mlp[@]}" \
  --link ratio=1 --html build/timeline.html
cat <<'TEXT'

Over a link, the product goes on while chunks travel: where it takes about as long as they do, and nobody else uses the
cores, "fused" comes near "ideal", the longer of product and collective. In shared memory the cores move the chunks
themselves, and over a link that is much faster than the product there is next to nothing to hide: what fusion saves
there is copies. The results are the same bits in every row. build/timeline.html shows the last one rank by rank.
TEXT
