#!/usr/bin/env python3
"""Sums up what bench/python/run.sh has measured: build/bench/python*.json.

bench/python/report.py build/bench/python*.json
bench/python/report.py --update docs/lab/python.md build/bench/python*.json
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import page

COLUMNS = ["what", "plait", "other", "ratio", "wanted", ""]


def table(rows: Iterable[dict[str, Any]]) -> page.Table:
    """Return rows as text, each with its bar and whether that is met."""
    return "Python", COLUMNS, [_cells(row) for row in rows]


def _cells(row: dict[str, Any]) -> list[str]:
    times = row["seconds"]
    others = [f"{time_of(spent)} {name}" for name, spent in times.items() if name != "plait"]
    if "at most" in row:
        limit = row["at most"]
        kept = times["plait"] <= limit
        return [row["what"], time_of(times["plait"]), "", "", f"<= {time_of(limit)}", said(kept)]
    bar, ratio = row["at least"], row["ratio"]
    wanted = "" if bar is None else f">= {bar:g}"
    kept = None if bar is None else ratio >= bar
    return [row["what"], time_of(times["plait"]), *others, f"{ratio:.2f}", wanted, said(kept)]


def time_of(seconds: float) -> str:
    """Write a time as people do."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def said(kept: bool | None) -> str:
    """Say whether a bar is met."""
    return "" if kept is None else "ok" if kept else "MISSED"


def words(conditions: dict[str, Any]) -> str:
    """Return on what it was measured, as a sentence of names and values."""
    return ", ".join(f"{name} {value}" for name, value in conditions.items())


class Results:
    """The files of some runs. Each has a table of its own, under its conditions."""

    def __init__(self, files: list[Path]) -> None:
        self.runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def tables(self) -> list[page.Table]:
        """Return a table for each run."""
        made = []
        for run in self.runs:
            uses = run["conditions"].get("plait uses")
            title = f"plait uses {uses}" if uses else "the wheel"
            made.append((title, *table(run["rows"])[1:]))
        return made

    def conditions(self) -> str:
        """Return those of each run, a paragraph each."""
        return "\n\n".join(words(run["conditions"]) for run in self.runs)


if __name__ == "__main__":
    sys.exit(page.main("python", Results))
