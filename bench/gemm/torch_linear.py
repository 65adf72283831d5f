#!/usr/bin/env python3
"""Measures torch's linear: y = x·wᵀ without a bias, in the cases of a run of plait_bench_gemm.

    bench/gemm/torch_linear.py --beside build/bench/gemm_square_1.json --out build/bench/gemm_torch_square_1.json

Needs torch 2.x (`pip install torch`, from the index for CPUs). Threads: OMP_NUM_THREADS, or 1. Writes the format of
Google Benchmark, with cases "SHAPE/DTYPE/torch/ROWS". Cases are measured in turns, and in CPU time if there is one
thread.
"""

import argparse
import json
import os
import random
import re
import sys
import time
from pathlib import Path

SECONDS = 0.05  # the least duration of a repetition
REPETITIONS = 7


def plait_cases(run: dict) -> list[tuple[str, str, int]]:
    """(shape, dtype, rows) of all of plait's cases, without duplicates."""
    names = (one["name"].split("/") for one in run["benchmarks"])
    return list(dict.fromkeys((n[0], n[1], int(n[3])) for n in names if n[2] == "plait"))


class Linear:
    def __init__(self, torch, name: str, x, weight):
        self.name = name
        self.torch = torch
        self.x, self.weight = x, weight
        self.call()
        self.calls = 1
        taken = self.seconds()[1]
        self.calls = max(1, int(SECONDS / max(taken, 1e-9)))

    def call(self) -> None:
        self.torch.nn.functional.linear(self.x, self.weight)

    def seconds(self) -> tuple[float, float]:
        """Processor and wall-clock time of a call."""
        cpu, wall = time.thread_time(), time.perf_counter()
        for _ in range(self.calls):
            self.call()
        return (time.thread_time() - cpu) / self.calls, (time.perf_counter() - wall) / self.calls


def measure(torch, run: dict, pattern: str) -> list[dict]:
    context = run["context"]
    sizes = {"n": int(context["n"]), "k": int(context["k"])}
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}
    weights = {name: torch.randn(sizes["n"], sizes["k"], dtype=dtype) for name, dtype in dtypes.items()}
    cases = []
    for shape, dtype, rows in plait_cases(run):
        name = f"{shape}/{dtype}/torch/{rows}"
        if re.search(pattern, name):
            x = torch.randn(rows, sizes["k"], dtype=dtypes[dtype])
            cases.append(Linear(torch, name, x, weights[dtype]))
    results = []
    for repetition in range(REPETITIONS):
        for case in random.sample(cases, len(cases)):
            cpu, wall = case.seconds()
            results.append(
                {
                    "name": case.name,
                    "run_type": "iteration",
                    "repetition_index": repetition,
                    "iterations": case.calls,
                    "real_time": wall * 1e6,
                    "cpu_time": cpu * 1e6,
                    "time_unit": "us",
                }
            )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures torch's linear in the cases of another run.")
    parser.add_argument("--beside", type=Path, required=True, help="a JSON file of plait_bench_gemm")
    parser.add_argument("--filter", default=".", help="a regular expression for the cases' names")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("torch_linear.py needs torch: pip install torch")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    run = json.loads(arguments.beside.read_text(encoding="utf-8"))
    with torch.inference_mode():
        results = measure(torch, run, arguments.filter)
    context = {"torch": torch.__version__, "date": run["context"]["date"]}
    arguments.out.write_text(json.dumps({"context": context, "benchmarks": results}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
