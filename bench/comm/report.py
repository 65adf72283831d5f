#!/usr/bin/env python3
"""Sums up the results of the comm benchmarks, and compares them with plait's targets.

    bench/comm/report.py build/bench/comm*.json
    bench/comm/report.py --markdown build/bench/comm*.json
    bench/comm/report.py --update docs/lab/communication.md build/bench/comm*.json

Reads the JSON files of plait_bench_comm and plait_bench_comm_mpi. With several runs of MPI, each row is taken
from the one in which MPI was faster, with plait's time and the ratio of that run.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import page  # noqa: E402, beside this folder

SIZES = [(2**20, "MiB"), (2**10, "KiB"), (1, "B")]


class Time(NamedTuple):
    us: float  # median
    sure: bool = True  # False: other programs took a processor in every repetition


class Pair(NamedTuple):
    """The times of plait and of MPI for one operation in one run."""

    ours: Time
    theirs: Time

    @property
    def ratio(self) -> float:
        return self.ours.us / self.theirs.us


def read_time(summary: dict) -> Time:
    return Time(summary["median_ns"] / 1e3, summary["kept"] > 0)


def size_text(size: int) -> str:
    unit, name = next((u, n) for u, n in SIZES if size >= u or u == 1)
    return f"{size // unit} {name}"


def us(time: Optional[Time]) -> str:
    if time is None:
        return "-"
    digits = 0 if time.us >= 100 else 2 if time.us >= 0.1 else 3
    return f"{'' if time.sure else '~'}{time.us:.{digits}f}"


class Results:
    def __init__(self, files: list[Path]):
        runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        self.alone = next((r for r in runs if not self.has_mpi(r)), None)
        self.beside = [r for r in runs if self.has_mpi(r)]
        self.runs = runs

    @staticmethod
    def has_mpi(run: dict) -> bool:
        return any("MPI" in race["contenders"] for race in run["races"])

    def time(self, what: str, size: int, who: str = "plait") -> Optional[Time]:
        for race in self.alone["races"] if self.alone else []:
            if (race["what"], race["bytes"]) == (what, size) and who in race["contenders"]:
                return read_time(race["contenders"][who])
        return None

    def pair(self, what: str, size: int) -> Optional[Pair]:
        pairs = [
            Pair(read_time(race["contenders"]["plait"]), read_time(race["contenders"]["MPI"]))
            for run in self.beside
            for race in run["races"]
            if (race["what"], race["bytes"]) == (what, size)
        ]
        return min(pairs, key=lambda pair: pair.theirs.us, default=None)

    def keys(self, runs: list[dict]) -> list[tuple[str, int]]:
        """The operations and sizes that were measured, in order, without duplicates."""
        found = ((race["what"], race["bytes"]) for run in runs for race in run["races"])
        return list(dict.fromkeys(found))

    def conditions(self) -> str:
        run = self.runs[0]
        machine = run["machine"]
        loads = [load for r in self.runs for load in r["load"]]
        titles = {r["title"].split(":")[0].removeprefix("plait and ") for r in self.beside}
        beside = f"; beside {', '.join(sorted(titles))}" if titles else ""
        return (
            f"{run['date']}: {machine['processor']}, {machine['processors']} processors, Linux "
            f"{machine['kernel']}, gcc {machine['compiler']}{beside}. "
            f"Load from {min(loads):.1f} to {max(loads):.1f}: 2 is the benchmark's own."
        )

    def promises(self) -> list[list[str]]:
        rows = []

        def row(text: str, value: float, bar: float, shown: str) -> None:
            rows.append([text, shown, f"{bar:g}", page.met(value <= bar)])

        if trip := self.time("mailbox, round trip", 64):
            row("round trip of 64 B, µs", trip.us, 0.3, us(trip))
        if pair := self.pair("all_reduce", 65536):
            row("all_reduce, 64 KiB, µs", pair.ours.us, 6, us(pair.ours))
        for size, bar in [(16384, 0.35), (65536, 0.55), (8 << 20, 0.6)]:
            if pair := self.pair("all_reduce", size):
                row(
                    f"all_reduce, {size_text(size)}, plait/MPI",
                    pair.ratio,
                    bar,
                    f"{pair.ratio:.2f}",
                )
        return rows

    def collectives(self) -> list[list[str]]:
        rows = []
        for what, size in self.keys(self.beside):
            pair = self.pair(what, size)
            assert pair
            # Larger tensors are sent in pieces, so the limit of one chunk does not apply.
            limit = self.time("mailbox, both ways at once", size, "bare") if size <= 65536 else None
            rows.append(
                [
                    what.replace(" fresh", ", input just written"),
                    size_text(size) if size else "",
                    us(pair.ours),
                    us(pair.theirs),
                    f"{pair.ratio:.2f}",
                    us(limit) if limit and what.startswith("all_reduce") else "",
                    us(self.time("all_reduce", size, "memcpy")) if size else "",
                ]
            )
        return rows

    def mailboxes(self) -> list[list[str]]:
        return [
            [what.removeprefix("mailbox, "), size_text(size)]
            + [us(self.time(what, size, who)) for who in ("plait", "bare", "memcpy")]
            for what, size in self.keys([self.alone] if self.alone else [])
            if what.startswith("mailbox")
        ]

    def links(self) -> list[list[str]]:
        return [
            [
                trial["waiting"],
                size_text(trial["bytes"]),
                us(Time(trial["ideal_ns"] / 1e3)),
                us(read_time(trial["measured"])),
                f"{trial['error_median'] * 100:.2f}",
                f"{trial['cpu_share'] * 100:.0f}",
                f"{trial['work_share'] * 100:.0f}" if "work_share" in trial else "",
            ]
            for trial in (self.alone["links"] if self.alone else [])
        ]

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        link = self.alone["links"][0]["link"] if self.alone and self.alone["links"] else ""
        return [
            ("Promised", ["figure", "measured", "at most", "met"], self.promises()),
            (
                "Collectives of two ranks, µs a call",
                ["", "size", "plait", "MPI", "plait/MPI", "bare", "memcpy"],
                self.collectives(),
            ),
            (
                "Mailbox, µs a chunk",
                ["", "size", "plait", "bare", "memcpy"],
                self.mailboxes(),
            ),
            (
                f"{link[:1].upper()}{link[1:]}: arrival in µs",
                ["the receiver is", "size", "ideal", "measured", "error, %", "CPU time, %", "work done, %"],
                self.links(),
            ),
        ]


def main() -> int:
    return page.main("comm", Results, shown=slice(2))


if __name__ == "__main__":
    sys.exit(main())
