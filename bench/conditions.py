#!/usr/bin/env python3
"""The conditions of a measurement: added to its JSON file right after it, and read for a page.

    bench/conditions.py build/bench/model_bloom-7b_0.08.json   # a file just written by plait bench
"""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Iterable


def processor() -> str:
    """The name with family and model, because the name of a virtual machine's processor is not specific."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return f"{found.get('model name', 'unknown')} (family {found.get('cpu family')}, model {found.get('model')})"


def commit() -> dict:
    """The commit of the sources; nothing for sources without git."""
    words = ["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]
    try:
        return {"commit": subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def now() -> dict:
    return {"date": str(datetime.date.today()), "processor": processor(), **commit(),
            "load": round(os.getloadavg()[0], 1)}


def rows_of(found: object) -> list[dict]:
    """The rows of a file: plait bench writes an object for one problem, and a list for several."""
    return found if isinstance(found, list) else [found]


def add(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    for one in rows_of(found):
        one["conditions"] = now()
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def read(file: Path) -> list[dict]:
    """A file's rows, each with its conditions; a row without conditions gets the day of the file."""
    written = str(datetime.date.fromtimestamp(file.stat().st_mtime))
    found = json.loads(file.read_text(encoding="utf-8"))
    return [{"conditions": {"date": written}, **one} for one in rows_of(found)]


def agreed(what: str, values: Iterable) -> str:
    """The only value. Rows with different values must not be in one table."""
    found = sorted({str(value) for value in values})
    if len(found) > 1:
        sys.exit(f"these files are of different {what}: {' and '.join(found)}")
    return found[0]


def said(rows: list[dict], name: str) -> list:
    return sorted({row["conditions"][name] for row in rows if name in row["conditions"]})


def span(values: list) -> str:
    """The range from the first to the last of sorted values."""
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def where(rows: list[dict]) -> str:
    """"2026-11-22: AMD EPYC (family 26, model 2), commit 886e3d4", or a range of days; only for rows of one machine."""
    machine = agreed("machines", (row["machine"] for row in rows))
    # The name with family and model, if known.
    processors = said(rows, "processor")
    if processors:
        machine = agreed("processors", processors)
    commits = said(rows, "commit")
    of_commit = f", commit{'s' * (len(commits) > 1)} {', '.join(commits)}" if commits else ""
    return f"{span(said(rows, 'date'))}: {machine}{of_commit}"


def load(rows: list[dict], ranks: str) -> str:
    """A sentence about the load, if it is known."""
    loads = said(rows, "load")
    return f" Load when measured {span(loads)}: {ranks} is the benchmark's own." if loads else ""


if __name__ == "__main__":
    for path in sys.argv[1:]:
        add(Path(path))
