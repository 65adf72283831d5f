#!/usr/bin/env python3
"""Sums up the results of the gemm benchmarks, and compares them with plait's targets.

    bench/gemm/report.py build/bench/gemm_*.json
    bench/gemm/report.py --markdown build/bench/gemm_*.json
    bench/gemm/report.py --update docs/lab/products.md build/bench/gemm_*.json

Reads the JSON files of plait_bench_gemm and torch_linear.py; a file gemm_SHAPE_3.json is round 3. A time is the median
of a round's repetitions. Ratios are taken within a round, and the median round is shown.
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import NamedTuple, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import page  # noqa: E402, beside this folder

FASTEST_OF_FEW = "the faster of oneDNN packed and reading the weight"
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

    def has(self, who: str) -> bool:
        return any(case.who == who for case in self.seconds)

    def shapes(self) -> list[str]:
        return list(dict.fromkeys(case.shape for case in self.seconds))

    def layers(self) -> list[str]:
        return [shape for shape in self.shapes() if shape != "square"]

    def rows(self, shape: str, dtype: str) -> list[int]:
        found = {c.rows for c in self.seconds if (c.shape, c.dtype) == (shape, dtype) and c.rows > 0}
        return sorted(found)

    def gigaflops(self, case: Case) -> Optional[float]:
        rounds = self.seconds.get(case)
        if not rounds:
            return None
        n, k = self.sizes[case.shape]
        return 2e-9 * case.rows * n * k / statistics.median(rounds.values())

    def speed_up(self, case: Case, rivals: tuple[str, ...]) -> Optional[float]:
        """The time of the fastest rival over ours, in the median round."""
        return self.ratio(case, [case._replace(who=who) for who in rivals])

    def ratio(self, case: Case, others: list[Case]) -> Optional[float]:
        ratios = []
        for turn, ours in self.seconds.get(case, {}).items():
            theirs = [self.seconds[other][turn] for other in others if turn in self.seconds.get(other, {})]
            if theirs:
                ratios.append(min(theirs) / ours)
        return statistics.median(ratios) if ratios else None

    def few_rows(self, case: Case) -> Optional[float]:
        """The ratio to oneDNN; up to 4 rows take at least as long as reading the weight."""
        rivals = [case._replace(who="onednn")]
        if case.rows <= 4:
            rivals.append(case._replace(who="memory", rows=1))
        return self.ratio(case, rivals)

    def of_peak(self, case: Case) -> Optional[float]:
        n, k = self.sizes[case.shape]
        work = 2.0 * case.rows * n * k
        peaks = self.peaks.get((case.shape, case.dtype), {})
        parts = [
            work / seconds / peaks[turn]
            for turn, seconds in self.seconds.get(case, {}).items()
            if peaks.get(turn)
        ]
        return statistics.median(parts) if parts else None

    def conditions(self) -> str:
        context = next((c for c in self.contexts if "processor" in c), {})
        loads = [c["load_avg"][0] for c in self.contexts if c.get("load_avg")]
        versions = [f"oneDNN {context['onednn']}"] if context.get("onednn") else []
        versions += sorted({f"torch {c['torch']}" for c in self.contexts if "torch" in c})
        peaks = ", ".join(f"{context[f'peak_{d}']} in {d}" for d in DTYPES if f"peak_{d}" in context)
        backends = ", ".join(f"{context[f'backend_{d}']} in {d}" for d in DTYPES if f"backend_{d}" in context)
        rounds = max((len(r) for r in self.seconds.values()), default=0)
        load = f" Load from {min(loads):.1f} to {max(loads):.1f}: 1 is the benchmark's own." if loads else ""
        return (
            f"{context.get('date', '')[:10]}: {context.get('processor', 'unknown')}, threads: "
            f"{context.get('threads', '1')}, gcc {context.get('compiler', '')}"
            f"{'; beside ' + ' and '.join(versions) if versions else ''}. Backends: {backends}. Peak: {peaks}. "
            f"{'One round.' if rounds == 1 else f'Median of {rounds} rounds.'}{load}"
        )

    def tables(self) -> list[page.Table]:
        found = [("Promised", ["figure", "worst", "geometric mean", "at least", "met"], promises(self))]
        found.extend(square(self, dtype) for dtype in DTYPES)
        found.append(two_threads(self))
        found.extend(layers(self, dtype) for dtype in DTYPES)
        return found


def fastest_of_many(results: Results) -> str:
    names = [name for who, name in (("onednn", "oneDNN packed"), ("torch", "torch")) if results.has(who)]
    return f"the faster of {' and '.join(names)}" if len(names) > 1 else "".join(names)


def number(value: Optional[float], digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def percent(value: Optional[float]) -> str:
    return "" if value is None else f"{value * 100:.0f}"


def promises(results: Results) -> list[list[str]]:
    rows = []

    def promise(text: str, values: list[Optional[float]], bar: float, mean_bar: float = 0) -> None:
        known = [value for value in values if value is not None]
        if known:
            mean = page.mean(known)
            met = page.met(min(known) >= bar and mean >= mean_bar)
            bars = f"{bar:.2f}, mean {mean_bar:.2f}" if mean_bar else f"{bar:.2f}"
            rows.append([text, f"{min(known):.2f}", f"{mean:.2f}", bars, met])

    for dtype in ("bf16", "f32"):
        for name, shapes in (("square", ["square"]), ("models' layers", results.layers())):
            promise(
                f"{dtype}, {name}, M 64 to 2048: the rate of {fastest_of_many(results)}",
                [
                    results.speed_up(Case(shape, dtype, "plait", rows), ("onednn", "torch"))
                    for shape in shapes
                    for rows in results.rows(shape, dtype)
                    if rows >= 64
                ],
                0.97,
                mean_bar=1.0,
            )
    promise(
        "bf16, square, M >= 512: part of the peak",
        [
            results.of_peak(Case("square", "bf16", "plait", rows))
            for rows in results.rows("square", "bf16")
            if rows >= 512
        ],
        0.92,
    )
    promise(
        "f16, square, M >= 128: the rate of bf16",
        [
            results.ratio(Case("square", "f16", "plait", rows), [Case("square", "bf16", "plait", rows)])
            for rows in results.rows("square", "f16")
            if rows >= 128
        ],
        0.97,
    )
    for dtype in ("bf16", "f32"):
        for name, shapes in (("square", ["square"]), ("models' layers", results.layers())):
            for m in (16, 4, 1):
                cases = [Case(shape, dtype, "plait", m) for shape in shapes]
                promise(
                    f"{dtype}, {name}, M = {m}: the rate of {'oneDNN packed' if m == 16 else FASTEST_OF_FEW}",
                    [results.few_rows(case) for case in cases],
                    0.9,
                )
    for text, who, rival, m, bar in PROMISES:
        promise(
            f"bf16, square, M = {m}: {text}",
            [results.speed_up(Case("square", "bf16", who, m), (rival,))],
            bar,
        )
    return rows


# Text, contender, rival, rows, and the least ratio of their speeds.
PROMISES = [
    ("plain beside packed", "plait_plain", "plait", 512, 0.96),
    ("plain beside packed", "plait_plain", "plait", 2048, 0.98),
    ("plain beside torch", "plait_plain", "torch", 512, 1.0),
    ("plain beside torch", "plait_plain", "torch", 2048, 1.0),
    ("windows of 256 columns beside the whole", "plait_windows", "plait", 512, 0.97),
    ("with a hook beside without", "plait_hook", "plait", 512, 0.98),
    ("dYᵀ·X beside oneDNN's", "plait_gradient", "onednn_gradient", 2048, 0.9),
    ("s8 beside bf16", "plait_s8", "plait", 512, 0.95),
    ("s8 beside bf16", "plait_s8", "plait", 1, 1.8),
    ("s8:group=128 beside bf16", "plait_s8_group", "plait", 512, 0.85),
    ("s8:group=128 beside bf16", "plait_s8_group", "plait", 1, 1.6),
    ("s4:group=64 beside bf16", "plait_s4_group", "plait", 1, 2.6),
    ("two threads beside one", "two_threads", "one_thread", 512, 1.9),
]


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


def square(results: Results, dtype: str) -> tuple[str, list[str], list[list[str]]]:
    columns = [
        (who, title)
        for who, title in COLUMNS
        if any(c.who == who and (c.shape, c.dtype) == ("square", dtype) for c in results.seconds)
    ]
    rows = []
    for m in results.rows("square", dtype):
        ours = Case("square", dtype, "plait", m)
        cells = [number(results.gigaflops(ours._replace(who=who))) for who, _ in columns]
        rows.append(
            [str(m), *cells, percent(results.of_peak(ours)), number(results.speed_up(ours, RIVALS), 2)]
        )
    n, k = results.sizes.get("square", (0, 0))
    return (
        f"{dtype}, N = {n}, K = {k}, GFLOP/s",
        ["M", *(title for _, title in columns), "plait, % of peak", "plait / fastest rival"],
        rows,
    )


def two_threads(results: Results) -> page.Table:
    rows = []
    for m in results.rows("square", "bf16"):
        ratios = [
            results.speed_up(Case("square", dtype, "two_threads", m), ("one_thread",)) for dtype in ("bf16", "f32")
        ]
        if any(ratios):
            rows.append([str(m), *(number(ratio, 2) for ratio in ratios)])
    return "Two threads, times as fast as one", ["M", "bf16", "f32"], rows


def layers(results: Results, dtype: str) -> tuple[str, list[str], list[list[str]]]:
    shapes = [s for s in results.layers() if results.rows(s, dtype)]
    ms = sorted({m for shape in shapes for m in results.rows(shape, dtype)})
    rows = []
    for shape in shapes:
        cells = []
        for m in ms:
            case = Case(shape, dtype, "plait", m)
            rate = number(results.gigaflops(case))
            beside = number(results.speed_up(case, RIVALS), 2)
            cells.append(f"{rate} ({beside})" if beside else rate)
        n, k = results.sizes[shape]
        rows.append([shape.replace("_", "-").replace(".", ", "), f"{n} x {k}", *cells])
    title = f"{dtype}, linear layers split over 8 ranks, GFLOP/s (and how many times as fast as the fastest rival)"
    return title, ["layer", "N x K", *(f"M = {m}" for m in ms)], rows


def main() -> int:
    return page.main("gemm", Results)


if __name__ == "__main__":
    sys.exit(main())
