#!/usr/bin/env python3
"""Sums up the results of `./do bench overlap`, and compares them with plait's targets.

    bench/overlap/report.py build/bench/overlap_*.json
    bench/overlap/report.py --update docs/lab/overlap.md docs/figures/overlap/*.json   # stored by keep.py
"""

import collections
import json
import operator
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import page  # noqa: E402, beside this folder
import keep  # noqa: E402, in this one


def efficiency(one: dict, plan: str):
    return next((s["overlap_efficiency"] for s in one["schedules"] if s["plan"] == plan), None)


def plan_named(one: dict, plan: str) -> dict:
    return next(s for s in one["schedules"] if s["plan"] == plan)


def speedup(one: dict, plan: str) -> float:
    return plan_named(one, plan)["speedup"]


def shown(value, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def plan_of(one: dict, plan: str) -> dict:
    return next(p for p in one["plans"] if p["plan"] == plan)


def shape_of(one: dict) -> str:
    return f"{one['m']} x {one['n']} x {one['k']}"


SECTIONS = {"link": "over links", "alone": "without a link", "rival": "beside oneDNN and MPI", "row": "one row",
            "worlds": "more ranks"}


# The numbers of cases of a complete measurement, with the shapes in this folder.
OPERATORS = 3
RATIOS = 3
KINDS = 3
RIVAL_KINDS = 2  # a rival has no 8-bit weights
WORLDS = 3


def shapes_in(name: str, fewest_rows: int = 1) -> int:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return sum(not line.startswith("#") and int(line.split()[0]) >= fewest_rows for line in lines)


DUE = {"link": shapes_in("shapes.txt", 512) * OPERATORS * RATIOS * KINDS,
       "alone": shapes_in("shapes.txt") * OPERATORS,  # of each kind
       "rival": shapes_in("shapes.txt") * OPERATORS * RIVAL_KINDS,
       "worlds": shapes_in("worlds.txt") * OPERATORS * WORLDS}  # in bf16


def count_of(found: list, section: str) -> str:
    """The number of rows of a figure, and the number of a complete measurement if that is larger."""
    return str(len(found)) if len(found) >= DUE[section] else f"{len(found)} of {DUE[section]}"


class Results:
    """Results from files of run.sh or keep.py."""

    def __init__(self, files: list[Path]):
        self.link, self.alone, self.rival, self.row, self.worlds = [], [], [], [], []
        self.measured = {}  # what was measured, by day, processor, commit and effort
        fresh = [file for file in files if file.stem.startswith("overlap_")]
        groups = keep.read(fresh)
        older = {}
        # Files of single rows come last.
        for kept in sorted(self.read_kept(set(files) - set(fresh)), key=lambda one: "again" in one):
            what = f"{SECTIONS[kept['section']]} in {kept['kind']}"
            rows = older.setdefault((kept["section"], kept["kind"]), [])
            if "again" in kept:
                new = {keep.problem(row): row for row in kept["again"]}
                rows[:] = [new.get(keep.problem(row), row) for row in rows]
                for when, count in collections.Counter(map(self.when, kept["again"])).items():
                    self.measured.setdefault(when, []).append(f"{count} {what} again")
            else:
                rows.extend(kept["rows"])
                self.measured.setdefault(self.when(kept), []).append(what)
        self.groups = sorted((groups | older).items())
        for (section, _), rows in self.groups:
            getattr(self, section).extend(rows)

    @staticmethod
    def when(kept: dict) -> str:
        commit = f", commit {kept['commit']}" if "commit" in kept else ""
        return f"{kept['date']}, {kept['processor']}{commit}, `{kept['effort']}`"

    @staticmethod
    def read_kept(files: set[Path]) -> list[dict]:
        return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]

    def conditions(self) -> str:
        rivals = sorted({one["rival"] for one in self.rival})
        worlds = sorted({one["ranks"] for one in [*self.link, *self.alone, *self.rival, *self.row]})
        who = " and ".join({1: "One rank", 2: "Two ranks"}.get(world, f"{world} ranks") for world in worlds or [2])
        lines = [f"{who} over shared memory, `./do bench overlap`{''.join(f', beside {one}' for one in rivals)}. "
                 "Links are emulated."]
        lines += [f"- {when}: {', '.join(what)}" for when, what in sorted(self.measured.items())]
        lines += [f"- {why}." for why in sorted({one.get("rival_refusal") for one in self.rival} - {None})]
        return "\n".join([lines[0], "", *lines[1:]] if len(lines) > 1 else lines)

    def rows(self) -> dict:
        """For one row: the time of fused beyond its product in µs, by problem, with one figure per run."""
        found = {}
        for one in self.row:
            beyond = plan_named(one, "fused")["median_ms"] - one["t_gemm_ms"]
            found.setdefault((f"{one['op']}, {one['kind']}", shape_of(one)), []).append(1000 * beyond)
        return found

    def bars(self) -> list[list[str]]:
        rows = []

        def add(what: str, value, bar: float, holds=operator.ge) -> None:
            rows.append([what, shown(value, 3), shown(bar), page.met(holds(value, bar))])

        for plan, bar in [("fused", 0.96), ("pipelined parts=8", 0.85), ("pipelined parts=4", 0.72)]:
            found = [e for one in self.link if (e := efficiency(one, plan)) is not None]
            if found:
                add(f"{plan}: efficiency, median of {count_of(found, 'link')}", statistics.median(found), bar)
                if plan == "fused":
                    add("fused: efficiency, lowest", min(found), 0.90)
        found = [speedup(one, "fused") for one in self.link if float(one["ratio"]) == 1]
        if found:
            rows.append([f"fused over serial, the link as slow as the product, median of {len(found)}",
                         shown(statistics.median(found), 3), "", ""])
        for kind in sorted({one["kind"] for one in self.alone}):
            found = [speedup(one, "fused") for one in self.alone if one["kind"] == kind]
            add(f"{kind}, no link: fused over serial, lowest of {count_of(found, 'alone')}", min(found), 0.99)
            if kind == "bf16":
                add("bf16, no link: fused over serial, geometric mean", page.mean(found), 1.02)
                # Without a target. This would be the result if fusion saved the whole collective.
                limit = page.mean([1 + one["t_comm_ms"] / one["t_gemm_ms"] for one in self.alone
                                   if one["kind"] == kind])
                rows.append(["bf16, no link: what the collective leaves to gain: (product + collective) / product, "
                             "geometric mean", shown(limit, 3), "", ""])
        found = [plan_of(one, "fused")["over_rival"] for one in self.rival if one["rival_ms"] is not None]
        if found:
            add(f"no link: fused over oneDNN and MPI, lowest of {count_of(found, 'rival')}", min(found), 1.0)
            add("no link: fused over oneDNN and MPI, geometric mean", page.mean(found), 1.10)
        found = [statistics.median(runs) for runs in self.rows().values()]
        if found:
            add(f"one row: fused beyond its product, µs, highest of {len(found)}", max(found), 3, operator.le)
        found = [e for one in self.worlds if (e := efficiency(one, "fused")) is not None]
        if found:
            add(f"fused, 3, 4 and 8 ranks: efficiency, lowest of {count_of(found, 'worlds')}", min(found), 0.90)
        return rows

    def tables(self) -> list[page.Table]:
        plans = ["pipelined parts=4", "pipelined parts=8", "fused"]
        over_links = [[f"{one['op']}, {one['kind']}", shape_of(one), one["ratio"],
                       shown(one["t_gemm_ms"], 1), shown(one["t_comm_ms"], 1),
                       *(shown(efficiency(one, plan)) for plan in plans), shown(speedup(one, "fused"))]
                      for one in self.link]
        without = [[f"{one['op']}, {one['kind']}", shape_of(one),
                    shown(one["t_gemm_ms"], 3), shown(one["t_comm_ms"], 3),
                    shown(one["schedules"][0]["median_ms"], 3),
                    *(shown(speedup(one, plan), 3) for plan in plans)]
                   for one in self.alone]
        beside = [[f"{one['op']}, {one['kind']}", shape_of(one), shown(one["rival_ms"], 3) or "none",
                   *(shown(plan_of(one, plan)["median_ms"], 3) for plan in ("serial", "fused")),
                   *(shown(plan_of(one, plan)["over_rival"], 3) for plan in ("serial", "fused"))]
                  for one in self.rival]
        worlds = [[f"{one['op']}, {one['kind']}", shape_of(one), str(one["ranks"]), shown(one["t_gemm_ms"], 1),
                   shown(one["t_comm_ms"], 1), shown(one["t_comm_cpu_ms"], 1), shown(efficiency(one, "fused")),
                   shown(speedup(one, "fused"))] for one in self.worlds]
        rows = [[*problem, ", ".join(shown(run, 1) for run in runs)] for problem, runs in self.rows().items()]
        return [
            ("Overlap: what was promised", ["figure", "measured", "bar", "met"], self.bars()),
            ("Overlap over emulated links: efficiency, and how many times as fast as serial fused is",
             ["operator", "m x n x k", "collective / product", "product, ms", "collective, ms", "4 parts", "8 parts",
              "fused", "fused over serial"], over_links),
            ("Fusion in shared memory, without a link: how many times as fast as serial",
             ["operator", "m x n x k", "product, ms", "collective, ms", "serial, ms", "4 parts", "8 parts", "fused"],
             without),
            ("Fusion in shared memory, beside oneDNN's product and MPI's collective",
             ["operator", "m x n x k", "oneDNN and MPI, ms", "serial, ms", "fused, ms", "serial is faster by",
              "fused is faster by"], beside),
            ("One row, in shared memory: what fused takes beyond its product, in three runs",
             ["operator", "m x n x k", "µs"], rows),
            ("More ranks, over emulated links that take as long as the product, which is waited for",
             ["operator", "m x n x k", "ranks", "product, ms", "collective, ms", "work, ms", "fused",
              "fused over serial"], worlds),
        ]


if __name__ == "__main__":
    sys.exit(page.main("overlap", Results))
