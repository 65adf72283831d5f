#!/usr/bin/env python3
"""Sums up what bench/network/run.sh has measured: build/bench/network.json.

bench/network/report.py build/bench/network.json
bench/network/report.py --update docs/lab/hosts.md build/bench/network.json
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import page  # noqa: E402, beside this folder

MARKS = ("<!-- begin: bench/network/report.py -->", "<!-- end: bench/network/report.py -->")
COLUMNS = ["what", "engine", "median", "range", "wanted", ""]


def show(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.2f}" + (f" {unit}" if unit == "Gbit/s" else "")
    if abs(value) < 1e-3:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.1f} ms" if abs(value) < 0.1 else f"{value:.2f} s"


def cells(row: dict) -> list[str]:
    values, unit = row["values"], row["unit"]
    if not values:
        return [row["what"], row["engine"], "", "", "", ""]
    median = statistics.median(values)
    spread = f"{show(min(values), unit)} to {show(max(values), unit)}" if len(values) > 1 else ""
    wanted, kept = "", None
    if "at least" in row:
        wanted, kept = f">= {show(row['at least'], unit)}", median >= row["at least"]
    elif "at most" in row:
        wanted, kept = f"<= {show(row['at most'], unit)}", median <= row["at most"]
    return [row["what"], row["engine"], show(median, unit), spread, wanted, {None: "", True: "ok"}.get(kept, "MISSED")]


class Results:
    """The rows of a file, by rate."""

    def __init__(self, files: list[Path]) -> None:
        if len(files) != 1:
            sys.exit("give one file")
        found = json.loads(files[0].read_text(encoding="utf-8"))
        self.rows, self.measured = found["rows"], found["conditions"]

    def tables(self) -> list[page.Table]:
        rates = dict.fromkeys(row["rate"] for row in self.rows)
        return [(f"{rate.removesuffix('gbit')} Gbit/s" if rate != "none" else "No limit", COLUMNS,
                 [cells(row) for row in self.rows if row["rate"] == rate]) for rate in rates]

    def conditions(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.measured.items())

    def text(self) -> str:
        return page.text(self.conditions(), self.tables())


if __name__ == "__main__":
    sys.exit(page.main("network", Results, MARKS))
