#!/usr/bin/env python3
"""Runs the same short cases with two builds in turns, and says how much slower or faster the second one is."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

OPERATORS = ["all-gather-matmul", "matmul-reduce-scatter", "matmul-all-reduce"]
SHAPES = [(64, 1024, 1024), (128, 2048, 2048), (256, 2048, 2048), (100, 1000, 3000), (384, 4096, 1024),
          (512, 1024, 4096)]
ONE_ROW = [(1, 4096, 4096), (1, 1024, 1024)]


def output_of(command: list) -> dict:
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def size(shape: tuple[int, int, int]) -> list:
    return [word for name, value in zip("mnk", shape) for word in (f"--{name}", value)]


def operator_times(build: Path, operator: str, shape: tuple[int, int, int], plans: str, dtype: str) -> dict[str, float]:
    found = output_of([build / "src/cli/plait", "bench", operator, *size(shape), "--dtype", dtype, "--plan", plans,
                       "--seconds", 0.3, "--json", "-"])
    name = f"{operator} {'x'.join(map(str, shape))} {dtype}"
    return {f"{name} {one['plan']}": one["median_ms"] for one in found["schedules"]}


def layer_times(build: Path) -> dict[str, float]:
    found = output_of([build / "src/cli/plait", "bench", "layer", "column", "-m", 256, "-n", 2048, "-k", 2048,
                       "--dtype", "f32", "--plan", "fused", "--seconds", 0.3, "--json", "-"])
    return {f"layer column 256x2048x2048 f32 {one['name']}": one["step_ms"] for one in found["schedules"]}


def collective_times(build: Path) -> dict[str, float]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [build / "bench/comm/plait_bench_comm", "--only", "all_reduce", "--sizes", "64KiB",
                   "--repetitions", 41, "--json", file.name]
        subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
        rows = json.loads(Path(file.name).read_text(encoding="utf-8"))["rows"]
    return {f"{row['what']['operation']} 64 KiB": row["values"]["plait"] / 1e3 for row in rows}


def cases() -> list:
    """Each is a function of a build folder that returns milliseconds by name."""
    found = [collective_times, layer_times]
    for operator in OPERATORS:
        for index, shape in enumerate(SHAPES):
            dtype = "f32" if index % 2 else "bf16"
            found.append(lambda build, o=operator, s=shape, d=dtype: operator_times(build, o, s, "serial;fused", d))
    for shape in ONE_ROW:
        found.append(lambda build, s=shape: operator_times(build, "matmul-all-reduce", s, "serial", "bf16"))
    return found


def percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do bench compare", description=__doc__)
    parser.add_argument("old", type=Path, help="build folder of the old programs")
    parser.add_argument("new", type=Path, nargs="?", help="build folder of the new ones")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each case with each build (default 8)")
    parser.add_argument("--json", type=Path, help="file for all times")
    parser.add_argument("--default-new", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    builds = [options.old, options.new or options.default_new]
    for build in builds:
        if not (build / "src/cli/plait").exists():
            parser.error(f"{build} has no src/cli/plait: is it a build folder?")
    if options.rounds < 4:
        parser.error(f"--rounds {options.rounds}: noise can't be told from fewer than 4 rounds")

    times: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
    for turn in range(options.rounds):
        for case in cases():
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, milliseconds in case(builds[which]).items():
                    times[name][which].append(milliseconds)
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)

    rows = []
    print(f"{builds[1]} beside {builds[0]}: median of {options.rounds} paired runs, milliseconds\n")
    ratios, noises = [], []
    for name, (old, new) in times.items():
        ratios.append(statistics.median(n / o for o, n in zip(old, new)))
        noises.append(statistics.median(old[::2]) / statistics.median(old[1::2]))
        print(f"{name:52} {statistics.median(old):10.4f} {statistics.median(new):10.4f} {percent(ratios[-1]):>9}")
        rows.append({"table": "The new build beside the old", "what": {"case": name},
                     "values": {"old": old, "new": new, "new / old": ratios[-1]}, "unit": {"old": "ms", "new": "ms"}})
    noise = max(report.mean(noises), 1 / report.mean(noises))
    print(f"\ngeometric mean {percent(report.mean(ratios))}; two halves of the old build's runs differ by "
          f"{percent(noise)} in the mean, by {percent(max(max(n, 1 / n) for n in noises))} at most")
    if options.json:
        found = {**conditions.now(), "old": str(builds[0]), "new": str(builds[1]), "command": "./do bench compare"}
        report.write(options.json, {"conditions": found, "rows": rows})
    return int(report.mean(ratios) > 1.01 * noise)


if __name__ == "__main__":
    sys.exit(main())
