#!/usr/bin/env bash
# What `./do demo` ends with: two layers of LLaMA2-70B over two ranks, a quarter as wide and deep, first in this host's
# shared memory, then over an emulated link of 10 Gbit/s, and one of them over a link that is as slow as the product is
# here, whatever this processor can do. As many tokens as make a product of some hundredths of a second: long enough to
# hide something behind, and less than a minute for all of it on a slow machine too.
set -euo pipefail
export LC_ALL=C  # numbers with points
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
plait=${BUILD:-build/release}/src/cli/plait

measure() {
  printf '\n== %s\n\n' "$1"
  "$plait" bench "${@:2}" --ranks 2 --parts 4 --seconds 0.3
}

trial=128  # tokens
wanted=40  # ms

# tokens_for MILLISECONDS: a power of two, by what the trial took.
tokens_for() {
  awk -v taken="$1" -v trial="$trial" -v wanted="$wanted" 'BEGIN {
    for (tokens = 32; tokens < 8192 && 1.5 * tokens * taken <= trial * wanted; tokens *= 2);
    print tokens
  }'
}

mlp=(matmul-all-reduce --n 2048 --k 7168)
taken=$("$plait" bench "${mlp[@]}" --m "$trial" --ranks 2 --schedule serial --repeat 5 --json - |
  sed -n 's/.*"t_gemm_ms": \([0-9.e+-]*\).*/\1/p')
tokens=$(tokens_for "$taken")
printf '\nTwo ranks share a layer of LLaMA2-70B (widths a quarter of the real ones, bf16).\n'
printf 'The product of the end of the MLP takes %.1f ms here with %s tokens: scaled to %s tokens, about %.0f ms.\n' \
  "$taken" "$trial" "$tokens" "$(awk "BEGIN { print $taken * $tokens / $trial }")"
mlp+=(--m "$tokens")
attention=(all-gather-matmul --m "$tokens" --n 2560 --k 2048)
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
