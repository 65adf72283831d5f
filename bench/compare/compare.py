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
          (512, 1024, 4096), (128, 1024, 8192)]
ONE_ROW = [(1, 4096, 4096), (1, 1024, 1024)]
QUANTISED = [(1, "s8:channel"), (1, "s4:group=128"), (16, "s8:channel"), (128, "s8:group=128")]  # rows, by 4096 x 4096
RANKS = 2
FEW_ROWS = {"rows": "1,2,4", "n": 256, "k": 4096, "dtypes": ("bf16", "f32"),
            "weights": "s8:group=128,s4:group=128,s8:channel,s4:channel"}


def output_of(command: list) -> dict:
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}")
    return json.loads(done.stdout)


def size(shape: tuple[int, int, int]) -> list:
    return [word for name, value in zip("mnk", shape) for word in (f"--{name}", value)]


def command_of(build: Path) -> Path:
    """The command in a build folder, which is below src/ in an older tree's."""
    new, old = build / "app/cli/plait", build / "src/cli/plait"
    return old if old.exists() and not new.exists() else new


def operator_times(build: Path, seconds: float, operator: str, shape: tuple[int, int, int], plans: str,
                   weight: str) -> dict:
    dtype = weight if weight in ("f32", "bf16") else "bf16"
    found = output_of([command_of(build), "bench", operator, "--ranks", RANKS, *size(shape), "--dtype", dtype,
                       "--weight", weight, "--plan", plans, "--seconds", seconds, "--json", "-"])
    name = f"{operator} {'x'.join(map(str, shape))} {weight}"
    return {f"{name} {one['plan']}": one["median_ms"] for one in found["schedules"]}


def few_row_times(build: Path, dtype: str, seconds: float) -> dict[str, float]:
    """The shortest call of each product, on one thread: other programs only make a call longer."""
    found = output_of([command_of(build), "bench", "matmul", "--m", FEW_ROWS["rows"], "--n", FEW_ROWS["n"],
                       "--k", FEW_ROWS["k"], "--dtype", dtype, "--weight", FEW_ROWS["weights"], "--threads", 1,
                       "--seconds", seconds, "--json", "-"])
    return {f"{one['m']} rows, {dtype} by {one['weight']}": one["min_ns"] / 1e6 for one in found["results"]}


def layer_times(build: Path, seconds: float) -> dict[str, float]:
    found = output_of([command_of(build), "bench", "layer", "column", "-m", 256, "-n", 2048, "-k", 2048,
                       "--dtype", "f32", "--plan", "fused", "--seconds", seconds, "--json", "-"])
    return {f"layer column 256x2048x2048 f32 {one['name']}": one["step_ms"] for one in found["schedules"]}


def collective_times(build: Path) -> dict[str, float]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [build / "bench/comm/plait_bench_comm", "--only", "all_reduce", "--sizes", "64KiB",
                   "--repetitions", 41, "--json", file.name]
        subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
        found = json.loads(Path(file.name).read_text(encoding="utf-8"))
    if "races" in found:  # older builds
        return {f"{race['what']} 64 KiB": race["contenders"]["plait"]["median_ns"] / 1e6 for race in found["races"]}
    return {f"{row['what']['operation']} 64 KiB": row["values"]["plait"] / 1e3 for row in found["rows"]}


def band_of(operator: str, shape: tuple[int, int, int], weight: str) -> str:
    """The cases whose mean is also printed alone: a product of few terms has more to do beside it."""
    if shape[0] == 1:
        return "one row" if weight == "bf16" else "one row, quantised"
    if weight not in ("f32", "bf16"):
        return "several rows, quantised"
    k_of_rank = shape[2] // (1 if operator == "all-gather-matmul" else RANKS)
    return f"k per rank {'from' if k_of_rank >= 2048 else 'below'} 2048"


def cases(seconds: float) -> list:
    """Each is a name of a band, and a function of a build folder that returns milliseconds by name."""
    found = [("collectives", collective_times), ("layers", lambda build: layer_times(build, seconds))]

    def add(operator: str, shape: tuple[int, int, int], plans: str, weight: str) -> None:
        band = band_of(operator, shape, weight)
        found.append((band, lambda build: operator_times(build, seconds, operator, shape, plans, weight)))

    for operator in OPERATORS:
        for index, shape in enumerate(SHAPES):
            add(operator, shape, "serial;fused", "f32" if index % 2 else "bf16")
    for shape in ONE_ROW:
        add("matmul-all-reduce", shape, "serial", "bf16")
    for rows, weight in QUANTISED:
        add("matmul-all-reduce", (rows, 4096, 4096), "serial", weight)
    return found


def few_row_cases(seconds: float) -> list:
    return [(dtype, lambda build, dtype=dtype: few_row_times(build, dtype, seconds)) for dtype in FEW_ROWS["dtypes"]]


def percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do bench compare", description=__doc__)
    parser.add_argument("old", type=Path, help="build folder of the old programs")
    parser.add_argument("new", type=Path, nargs="?", help="build folder of the new ones")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each case with each build (default 8)")
    parser.add_argument("--few-rows", action="store_true",
                        help="measure only products of 1, 2 and 4 rows by quantised weights of 256 columns")
    parser.add_argument("--seconds", type=float,
                        help="for each plan (default 0.3), with --few-rows for each product (default 0.2)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="measure each Nth case only (default 1)")
    parser.add_argument("--json", type=Path, help="file for all times")
    parser.add_argument("--default-new", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    builds = [options.old, options.new or options.default_new]
    for build in builds:
        if not command_of(build).exists():
            parser.error(f"{build} has no app/cli/plait: is it a build folder?")
    if options.rounds < 4:
        parser.error(f"--rounds {options.rounds}: noise can't be told from fewer than 4 rounds")
    if options.every < 1:
        parser.error(f"--every {options.every}: must be at least 1")
    shown = ["--few-rows"] if options.few_rows else []
    shown += [f"--every {options.every}"] if options.every > 1 else []
    shown += [f"--seconds {options.seconds:g}"] if options.seconds else []

    times: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
    bands: dict[str, str] = {}
    for turn in range(options.rounds):
        wanted = few_row_cases(options.seconds or 0.2) if options.few_rows else cases(options.seconds or 0.3)
        for band, case in wanted[:: options.every]:
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, milliseconds in case(builds[which]).items():
                    times[name][which].append(milliseconds)
                    bands[name] = band
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)

    rows = []
    print(f"{builds[1]} beside {builds[0]}: median of {options.rounds} paired runs, milliseconds\n")
    ratios, noises = [], []
    of_band = defaultdict(list)
    for name, (old, new) in times.items():
        ratios.append(statistics.median(n / o for o, n in zip(old, new)))
        of_band[bands[name]].append(ratios[-1])
        noises.append(statistics.median(old[::2]) / statistics.median(old[1::2]))
        print(f"{name:52} {statistics.median(old):10.4g} {statistics.median(new):10.4g} {percent(ratios[-1]):>9}")
        rows.append({"table": "The new build beside the old", "band": bands[name], "what": {"case": name},
                     "values": {"old": old, "new": new, "new / old": ratios[-1]}, "unit": {"old": "ms", "new": "ms"}})
    print()
    for band, some in of_band.items():
        print(f"{f'{band}, mean of {len(some)}':52} {percent(report.mean(some)):>31}   most {percent(max(some))}")
    noise = max(report.mean(noises), 1 / report.mean(noises))
    print(f"\ngeometric mean {percent(report.mean(ratios))}; two halves of the old build's runs differ by "
          f"{percent(noise)} in the mean, by {percent(max(max(n, 1 / n) for n in noises))} at most")
    if options.json:
        command = " ".join(["./do bench compare OLD", *shown])
        found = {**conditions.now(), "old": str(builds[0]), "new": str(builds[1]), "command": command}
        report.write(options.json, {"conditions": found, "rows": rows})
    return int(report.mean(ratios) > 1.01 * noise)


if __name__ == "__main__":
    sys.exit(main())
