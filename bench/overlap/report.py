#!/usr/bin/env python3
"""Sums up what `./do bench overlap` measured, beside what plait promises.

    bench/overlap/report.py build/bench/overlap_*.json
    bench/overlap/report.py --update docs/performance.md build/bench/overlap_*.json
"""

import datetime
import json
import math
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import page  # noqa: E402, beside this folder

BEGIN = "<!-- begin: bench/overlap/report.py -->"
END = "<!-- end: bench/overlap/report.py -->"


def efficiency(one: dict, plan: str):
    return next((s["overlap_efficiency"] for s in one["schedules"] if s["plan"] == plan), None)


def speedup(one: dict, plan: str) -> float:
    return next(s["speedup"] for s in one["schedules"] if s["plan"] == plan)


def shown(value, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


class Results:
    def __init__(self, files: list[Path]):
        self.problems = []
        for file in files:
            found = json.loads(file.read_text(encoding="utf-8"))
            for one in found if isinstance(found, list) else [found]:
                kind, ratio = file.stem.split("_")[-2:]  # overlap_OPERATOR_KIND_RATIO.json
                self.problems.append({**one, "kind": kind, "ratio": ratio})
        self.linked = [one for one in self.problems if one["link"] is not None]
        self.alone = [one for one in self.problems if one["link"] is None]

    def conditions(self) -> str:
        first = self.problems[0]
        load = os.getloadavg()[0]
        return (f"{datetime.date.today()}: {first['machine']}, {first['ranks']} ranks over {first['transport']}, "
                f"`./do bench overlap`. Links are emulated. Load at the end {load:.1f}: {first['ranks']} is the "
                "benchmark's own.")

    def bars(self) -> list[list[str]]:
        rows = []

        def add(what: str, value, bar: float) -> None:
            rows.append([what, shown(value, 3), shown(bar), "yes" if value >= bar else "**no**"])

        for plan, bar in [("fused", 0.96), ("pipelined parts=8", 0.85), ("pipelined parts=4", 0.72)]:
            found = [e for one in self.linked if (e := efficiency(one, plan)) is not None]
            if found:
                add(f"{plan}: efficiency, median of {len(found)}", statistics.median(found), bar)
                if plan == "fused":
                    add("fused: efficiency, lowest", min(found), 0.90)
        for kind in sorted({one["kind"] for one in self.alone}):
            found = [speedup(one, "fused") for one in self.alone if one["kind"] == kind]
            add(f"{kind}, no link: fused over serial, lowest of {len(found)}", min(found), 0.99)
            if kind == "bf16":
                mean = math.exp(statistics.fmean(map(math.log, found)))
                add("bf16, no link: fused over serial, geometric mean", mean, 1.02)
        return rows

    def tables(self) -> list[page.Table]:
        plans = ["pipelined parts=4", "pipelined parts=8", "fused"]
        over_links = [[f"{one['op']}, {one['kind']}", f"{one['m']} x {one['n']} x {one['k']}", one["ratio"],
                       shown(one["t_gemm_ms"], 1), shown(one["t_comm_ms"], 1),
                       *(shown(efficiency(one, plan)) for plan in plans), shown(speedup(one, "fused"))]
                      for one in self.linked]
        without = [[f"{one['op']}, {one['kind']}", f"{one['m']} x {one['n']} x {one['k']}",
                    shown(one["t_gemm_ms"], 3), shown(one["t_comm_ms"], 3),
                    shown(one["schedules"][0]["median_ms"], 3),
                    *(shown(speedup(one, plan), 3) for plan in plans)]
                   for one in self.alone]
        return [
            ("Overlap: what was promised", ["figure", "measured", "bar", "met"], self.bars()),
            ("Overlap over emulated links: efficiency, and how many times as fast as serial fused is",
             ["operator", "m x n x k", "collective / product", "product, ms", "collective, ms", "4 parts", "8 parts",
              "fused", "fused over serial"], over_links),
            ("Fusion in shared memory, without a link: how many times as fast as serial",
             ["operator", "m x n x k", "product, ms", "collective, ms", "serial, ms", "4 parts", "8 parts", "fused"],
             without),
        ]


if __name__ == "__main__":
    sys.exit(page.main("overlap", Results, (BEGIN, END)))
