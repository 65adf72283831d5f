#!/usr/bin/env python3
"""Turns the results of the gemm benchmarks into a document for bench/report.py.

    bench/gemm/rows.py build/bench/gemm.json build/bench/gemm_*.json

Reads the JSON files of plait_bench_gemm and torch_linear.py; a file gemm_SHAPE_3.json is round 3. A time is the median
of a round's repetitions. Ratios are taken within a round; there is one for each round.
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import NamedTuple, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

RIVALS = ("onednn", "onednn_plain", "torch")
DTYPES = ("bf16", "f32", "f16")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class Case(NamedTuple):
    shape: str
    dtype: str
    who: str
    rows: int


def parse(name: str) -> Case:
    shape, dtype, who, rows = name.split("/")[:4]
    return Case(shape, dtype, who, int(rows))


class Results:
    def __init__(self, files: list[Path]):
        self.contexts = []
        self.sizes: dict[str, tuple[int, int]] = {}  # (n, k) of a shape
        self.seconds: dict[Case, dict[str, float]] = {}  # by round
        self.peaks: dict[tuple[str, str], dict[str, float]] = {}  # FLOP/s of (shape, dtype), by round
        for file in files:
            self.read(file)

    def read(self, file: Path) -> None:
        run = json.loads(file.read_text(encoding="utf-8"))
        self.contexts.append(run["context"])
        number = re.search(r"(\d+)$", file.stem)
        turn = number[1] if number else file.stem
        # CPU time excludes the turns of other programs, but it does not include the time of other threads.
        clock = "cpu_time" if run["context"].get("threads", "1") == "1" else "real_time"
        samples: dict[Case, list[float]] = {}
        for one in run["benchmarks"]:
            if one.get("run_type") != "iteration" or one.get("error_occurred"):
                continue
            case = parse(one["name"])
            time = one[clock] * UNITS[one["time_unit"]]
            samples.setdefault(case, []).append(time)
            if case.who == "peak":
                flops = one["flops"] * one["real_time"] / one[clock]
                self.peaks.setdefault((case.shape, case.dtype), {}).setdefault(turn, 0.0)
                best = self.peaks[case.shape, case.dtype]
                best[turn] = max(best[turn], flops)
            elif "n" in run["context"]:
                self.sizes[case.shape] = (int(run["context"]["n"]), int(run["context"]["k"]))
        for case, times in samples.items():
            self.seconds.setdefault(case, {})[turn] = statistics.median(times)

    def shapes(self) -> list[str]:
        return list(dict.fromkeys(case.shape for case in self.seconds))

    def rows(self, shape: str, dtype: str) -> list[int]:
        found = {c.rows for c in self.seconds if (c.shape, c.dtype) == (shape, dtype) and c.rows > 0}
        return sorted(found)

    def gigaflops(self, case: Case) -> Optional[float]:
        rounds = self.seconds.get(case)
        if not rounds:
            return None
        n, k = self.sizes[case.shape]
        return 2e-9 * case.rows * n * k / statistics.median(rounds.values())

    def ratios(self, case: Case, others: list[Case]) -> list[float]:
        """How many times as fast as the fastest of the others, in each round."""
        found = []
        for turn, ours in self.seconds.get(case, {}).items():
            theirs = [self.seconds[other][turn] for other in others if turn in self.seconds.get(other, {})]
            if theirs:
                found.append(min(theirs) / ours)
        return found

    def few_rows(self, case: Case) -> list[float]:
        """The ratio to oneDNN; up to 4 rows take at least as long as reading the weight."""
        rivals = [case._replace(who="onednn")]
        if case.rows <= 4:
            rivals.append(case._replace(who="memory", rows=1))
        return self.ratios(case, rivals) if case.rows <= 16 else []

    def of_peak(self, case: Case) -> list[float]:
        n, k = self.sizes[case.shape]
        work = 2.0 * case.rows * n * k
        peaks = self.peaks.get((case.shape, case.dtype), {})
        return [work / seconds / peaks[turn] for turn, seconds in self.seconds.get(case, {}).items()
                if peaks.get(turn)]

    def conditions(self) -> dict:
        context = next((c for c in self.contexts if "processor" in c), {})
        loads = [c["load_avg"][0] for c in self.contexts if c.get("load_avg")]
        versions = [f"oneDNN {context['onednn']}"] if context.get("onednn") else []
        versions += sorted({f"torch {c['torch']}" for c in self.contexts if "torch" in c})
        found = {"date": context.get("date", "")[:10], "processor": context.get("processor", "unknown"),
                 **conditions.commit(), "load": max(loads, default=None), "threads": context.get("threads", "1"),
                 "gcc": context.get("compiler"), "beside": " and ".join(versions) or None,
                 **{f"{name}s": ", ".join(f"{context[f'{name}_{dtype}']} in {dtype}" for dtype in DTYPES
                                          if f"{name}_{dtype}" in context) for name in ("backend", "peak")},
                 "rounds": max((len(r) for r in self.seconds.values()), default=0), "command": "./do bench gemm"}
        return {name: value for name, value in found.items() if value}

    def product_rows(self, shape: str, dtype: str) -> list[dict]:
        """A row for each number of rows: all contenders' rates, and how plait's compares."""
        n, k = self.sizes.get(shape, (0, 0))
        what = {"layer": shape.replace("_", "-").replace(".", ", "), "N x K": f"{n} x {k}"}
        found = []
        for m in self.rows(shape, dtype):
            ours = Case(shape, dtype, "plait", m)
            rates = {title: self.gigaflops(ours._replace(who=who)) for who, title in COLUMNS}
            ratios = {PEAK: self.of_peak(ours), FASTEST: self.ratios(ours, [ours._replace(who=who) for who in RIVALS]),
                      MANY: self.ratios(ours, [ours._replace(who=who) for who in ("onednn", "torch")]),
                      FEW: self.few_rows(ours)}
            values = {name: value for name, value in {**rates, **ratios}.items() if value}
            if values:
                found.append({"table": f"{dtype}, {kind_of(shape)}, GFLOP/s", "what": {**what, "M": str(m)},
                              "values": values})
        return found

    def promised_rows(self) -> list[dict]:
        """A row for each ratio of two contenders that has a bar."""
        promised = [*PROMISES, *(("two threads beside one", dtype, "two_threads", "one_thread", m, bar)
                                 for dtype in ("bf16", "f32") for m, bar in THREADS[dtype].items())]
        promised += [("f16 beside bf16", "f16", "plait", "plait", m, 0.97) for m in self.rows("square", "f16")
                     if m >= 128]
        found = []
        for text, dtype, who, rival, m, bar in promised:
            other = Case("square", "bf16" if dtype == "f16" else dtype, rival, m)
            if ratios := self.ratios(Case("square", dtype, who, m), [other]):
                found.append({"table": "Square, ratios of speeds", "what": {"": text, "dtype": dtype, "M": str(m)},
                              "values": {"ratio": ratios}, **({"bar": {"at least": bar}} if bar else {})})
        return found

    def document(self) -> dict:
        rows = [row for shape in self.shapes() for dtype in DTYPES for row in self.product_rows(shape, dtype)]
        rows.sort(key=lambda row: not row["table"].startswith(tuple(f"{dtype}, square" for dtype in DTYPES)))
        return {"conditions": self.conditions(), "rows": self.promised_rows() + rows, "bars": bars()}


def kind_of(shape: str) -> str:
    return "square" if shape == "square" else "linear layers split over 8 ranks"


def bars() -> list[dict]:
    found = []

    def bar(dtype: str, shape: str, ms: list[int], value: str, least: dict) -> None:
        text = f"M = {ms[0]}" if len(ms) == 1 else f"M {ms[0]} to {ms[-1]}"
        title = f"{dtype}, {kind_of(shape)}"
        found.extend({"what": f"{title}, {text}: {value}", "table": f"{title}, GFLOP/s", "value": value,
                      "where": {"M": list(map(str, ms))}, "take": take, "at least": one}
                     for take, one in least.items())

    for dtype in ("bf16", "f32"):
        for shape in ("square", "layers"):
            bar(dtype, shape, [64, 128, 256, 512, 1024, 2048], MANY, {"lowest": 0.97, "geometric mean": 1.0})
            for m in (16, 4, 1):
                bar(dtype, shape, [m], FEW, {"lowest": 0.9})
    bar("bf16", "square", [512, 1024, 2048], PEAK, {"lowest": 0.92})
    return found


PEAK = "plait, of the peak"
FASTEST = "plait / fastest rival"
MANY = "plait / faster of oneDNN packed and torch"
FEW = "plait / faster of oneDNN packed and reading the weight"

# Text, dtype, contender, rival, rows, and the least ratio of their speeds.
PROMISES = [
    ("plain beside packed", "bf16", "plait_plain", "plait", 512, 0.96),
    ("plain beside packed", "bf16", "plait_plain", "plait", 2048, 0.98),
    ("plain beside torch", "bf16", "plait_plain", "torch", 512, 1.0),
    ("plain beside torch", "bf16", "plait_plain", "torch", 2048, 1.0),
    ("windows of 256 columns beside the whole", "bf16", "plait_windows", "plait", 512, 0.97),
    ("with a hook beside without", "bf16", "plait_hook", "plait", 512, 0.98),
    ("dYᵀ·X beside oneDNN's", "bf16", "plait_gradient", "onednn_gradient", 2048, 0.9),
    ("s8 beside bf16", "bf16", "plait_s8", "plait", 512, 0.95),
    ("s8 beside bf16", "bf16", "plait_s8", "plait", 1, 1.8),
    ("s8:group=128 beside bf16", "bf16", "plait_s8_group", "plait", 512, 0.85),
    ("s8:group=128 beside bf16", "bf16", "plait_s8_group", "plait", 1, 1.6),
    ("s4:group=64 beside bf16", "bf16", "plait_s4_group", "plait", 1, 2.6),
]
THREADS = {"bf16": {16: None, 128: None, 512: 1.9, 2048: None}, "f32": dict.fromkeys((16, 128, 512, 2048))}

COLUMNS = [
    ("plait", "plait"),
    ("plait_plain", "plain"),
    ("plait_windows", "windows"),
    ("plait_hook", "hook"),
    ("plait_gradient", "dYᵀ·X"),
    ("plait_s8", "s8"),
    ("plait_s8_group", "s8:group=128"),
    ("plait_s4_group", "s4:group=64"),
    ("onednn", "oneDNN"),
    ("onednn_plain", "oneDNN, plain"),
    ("onednn_gradient", "oneDNN, dYᵀ·X"),
    ("torch", "torch"),
    ("memory", "reading the weight"),
]


if __name__ == "__main__":
    report.write(Path(sys.argv[1]), Results([Path(file) for file in sys.argv[2:]]).document())
