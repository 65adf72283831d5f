#!/usr/bin/env python3
"""Measure what a layer could gain if a norm were hidden behind a sum over ranks.

    bench/python/norms.py [--rows 1,2048] [--turns 7]

A LLaMA-7B layer on two ranks has two norms with their residual sums, and as much multiplication as
twelve products of [4096, 2048] weights. torch, bf16, one thread; medians. layer_norm makes one pass
over a row, and stands for an RMSNorm that does.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

HIDDEN, SHARE, PRODUCTS, NORMS = 4096, 2048, 12, 2


def seconds(call: Callable[[], object], turns: int) -> float:
    """Return the median of the times of a call, after one that is not counted."""
    times = []
    for _ in range(turns + 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="1,2048")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    weight = torch.randn(SHARE, HIDDEN).bfloat16()
    scale = torch.ones(HIDDEN).bfloat16()
    for rows in map(int, options.rows.split(",")):
        x, residual = torch.randn(2, rows, HIDDEN).bfloat16()
        slow = seconds(
            lambda x=x, r=residual: functional.rms_norm(x + r, (HIDDEN,), scale), options.turns
        )
        fast = seconds(
            lambda x=x, r=residual: functional.layer_norm(x + r, (HIDDEN,), scale), options.turns
        )
        product = seconds(lambda x=x: functional.linear(x, weight), options.turns)
        layer = PRODUCTS * product + NORMS * fast
        print(
            f"{rows} rows: rms_norm {1e6 * slow:.0f} us, layer_norm {1e6 * fast:.0f} us, a product "
            f"{1e6 * product:.0f} us; two fast norms are {NORMS * fast / layer:.2%} of a layer, "
            f"two of torch's more by {NORMS * (slow - fast) / layer:.1%} of it"
        )


if __name__ == "__main__":
    main()
