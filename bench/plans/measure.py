#!/usr/bin/env python3
"""Measures automatic plans and all others; run.sh sets its environment."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

PLAIT = os.environ["PLAIT_COMMAND"]
RESULTS = Path(os.environ["RESULTS"])
SHAPES = Path(__file__).resolve().parents[1] / "overlap/shapes.txt"

OPERATORS = ["matmul-all-reduce", "matmul-reduce-scatter", "matmul-all-gather", "all-gather-matmul",
             "reduce-scatter-matmul", "all-reduce-matmul"]
TABLE = "Automatic plans beside all others"
MODEL, TUNED = "model's, of the best", "tune's, of the best"
OVER_SERIAL = {MODEL: "model's over serial", TUNED: "tune's over serial"}
FUSED = {"matmul-all-reduce", "matmul-reduce-scatter", "all-gather-matmul"}


def plait(*words) -> str:
    done = subprocess.run([PLAIT, *map(str, words)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"plait {' '.join(map(str, words))} ended with status {done.returncode}")
    return done.stdout


def all_plans(operator: str, m: int, n: int) -> list[str]:
    """The plans of an exhaustive search, without serial, which is always measured."""
    plans = [f"pipelined parts={parts}" for parts in (2, 4, 8, 16, 32)]
    plans += [f"pipelined parts={parts} first={first} last={last}"
              for parts in (4, 8) for first, last in ((100, 25), (25, 100), (25, 25))]
    if operator.startswith("matmul"):
        plans += [f"pipelined axis=rows parts={parts}" for parts in (4, 8)]
    if operator in FUSED:
        size = n if operator.startswith("matmul") else m // 2
        plans += ["fused"] + [f"fused chunk={size // chunks}" for chunks in (4, 8, 16, 32) if size // chunks >= 16]
    return plans


def link_for(operator: str, size: list[str], ratio: float) -> str:
    """The link that plait bench finds for this ratio; empty: none."""
    if ratio == 0:
        return ""
    found = json.loads(plait("bench", operator, *size, "--link", f"ratio={ratio}", "--schedule", "serial",
                             "--repeat", 1, "--json", "-"))
    return found["link"]


def measure(operator: str, shape: tuple[int, int, int], ratio: float, seconds: float) -> dict:
    size = [word for name, value in zip("mnk", shape) for word in (f"--{name}", str(value))]
    link = link_for(operator, size, ratio)
    over = ["--link", link] if link else []
    tuned = json.loads(plait("tune", "--op", operator, *size, *over, "--seconds", seconds, "--json", "-"))
    (problem,) = tuned["problems"]
    key = problem["problem"]
    # The model's choice without measured plans: the cache does not exist, but its profile does.
    os.environ["PLAIT_PLAN_CACHE"], kept = str(RESULTS / "plans_none"), os.environ["PLAIT_PLAN_CACHE"]
    chosen = json.loads(plait("info", "--json", "--why", key))
    os.environ["PLAIT_PLAN_CACHE"] = kept
    model = chosen["chosen"]
    plans = dict.fromkeys([model, problem["plan"], *all_plans(operator, shape[0], shape[1])])
    plans.pop("serial", None)
    found = json.loads(plait("bench", operator, *size, *over, "--plan", ";".join(plans), "--seconds", seconds / 4,
                             "--json", "-"))
    predicted = {one["plan"]: one["predicted_ns"] * 1e-6 for one in chosen["plans"]}
    return row_of(found, ratio, model, problem["plan"], predicted)


def row_of(found: dict, ratio: float, model: str, tuned: str, predicted: dict[str, float]) -> dict:
    """A row from what plait bench has measured, in milliseconds."""
    if not all(one["bits_equal"] for one in found["schedules"]):
        sys.exit(f"the plans of {found['op']} have different results")
    # The fastest of each plan's repetitions; all plans have the same number. If other programs take a third of a
    # processor for seconds, a median of a dozen depends on whose turn that was.
    times = {one["plan"]: one["min_ms"] for one in found["schedules"]}
    best = min(times, key=times.get)
    # The spread of the ratios of predictions and times: 0 if they are proportional.
    ratios = [predicted[plan] / times[plan] for plan in times if plan in predicted]
    spread = max(abs(one / statistics.median(ratios) - 1) for one in ratios)
    values = {"serial, ms": times["serial"], "the best of all": best, "ms": times[best],
              "the model's": model, MODEL: times[best] / times[model],
              OVER_SERIAL[MODEL]: times["serial"] / times[model],
              "plait tune's": tuned, TUNED: times[best] / times[tuned],
              OVER_SERIAL[TUNED]: times["serial"] / times[tuned], "predictions off by": spread}
    what = {"operator": found["op"], "m x n x k": f"{found['m']} x {found['n']} x {found['k']}",
            "collective / product": f"{ratio:g}" if ratio else "no link"}
    return {"table": TABLE, "what": what, "values": values, "unit": {"predictions off by": "%"}}


def bars() -> list[dict]:
    found = []
    for column, text in ((TUNED, "plait tune's plan"), (MODEL, "the model's plan")):
        for take in ("geometric mean", "lowest"):
            found.append({"what": f"{text} over the best of all", "table": TABLE, "value": column, "take": take,
                          "at least": 0.97})
        found.append({"what": f"{text} over serial", "table": TABLE, "value": OVER_SERIAL[column],
                      "take": "lowest", "at least": 0.99})
    return found


def read_shapes(path: Path) -> list[tuple[int, int, int]]:
    lines = (line.split("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    return [tuple(map(int, line)) for line in lines if line]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures automatic plans and all others.")
    parser.add_argument("--quick", action="store_true",
                        help="measure one small shape, without a link and with one ratio")
    parser.add_argument("--shapes", type=Path, default=SHAPES)
    parser.add_argument("--ratios", default="0,0.5,1,2")
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    shapes = [(256, 1024, 2048)] if options.quick else read_shapes(options.shapes)
    ratios = [0, 1] if options.quick else [float(one) for one in options.ratios.split(",")]
    os.environ["PLAIT_PLAN_CACHE"] = str(RESULTS / "plans_cache")
    profile = RESULTS / "plans_cache.profile"
    if not profile.exists():
        plait("tune", "--profile")
    (RESULTS / "plans_none.profile").write_text(profile.read_text(encoding="utf-8"), encoding="utf-8")
    for operator in options.operators.split(","):
        found = []
        for shape in shapes:
            for ratio in ratios:
                print(f"{operator} {' x '.join(map(str, shape))}, ratio {ratio:g}", flush=True)
                found.append(measure(operator, shape, ratio, options.seconds))
        report.write(RESULTS / f"plans_{operator}.json",
                     {"what": operator, "conditions": {**conditions.now(), "command": "./do bench plans"},
                      "rows": found, "bars": bars()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
