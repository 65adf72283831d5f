#!/usr/bin/env python3
"""Measures rows again, for longer, that keep.py has stored and that look like noise: too low, or too high.

    bench/overlap/again.py [--efficiency 0.90] [--above 1.02] [--speedup 0.99] [--speedup-above S] [--seconds 5]
                           [--list]

Rows over links are selected by fused's efficiency: below --efficiency, or above --above, which no plan can reach.
Rows without a link are selected by the speed-up of fused over serial: below --speedup, or above --speedup-above, if
given. The new result replaces the row, whatever it is, as soon as it is known. --list only prints the selected rows.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keep
import report  # from the folder above, which keep has named

RUN = Path(__file__).resolve().parent / "run.sh"
SECTION_OF = {table: section for section, table in keep.TABLES.items()}


def is_suspect(row: dict, bounds: argparse.Namespace) -> bool:
    section, found = SECTION_OF[row["table"]], row["values"].get("fused")
    if section == "alone":
        return not bounds.speedup <= found <= bounds.speedup_above
    return section == "link" and found is not None and not bounds.efficiency <= found <= bounds.above


def measure(row: dict, seconds: str, folder: Path) -> list[Path]:
    """Measures one row; returns the files that run.sh has written."""
    what = row["what"]
    shapes = folder / "shapes.txt"
    shapes.write_text(what["m x n x k"].replace(" x ", " ") + "\n", encoding="utf-8")
    words = ["--only", SECTION_OF[row["table"]], "--kinds", what["weights"], "--operators",
             what["operator"].replace("_", "-"), "--shapes", str(shapes), "--seconds", seconds]
    if keep.RATIO in what:
        words += ["--ratios", what[keep.RATIO]]
    subprocess.run([RUN, *words], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "RESULTS": str(folder)})
    return sorted(folder.glob("overlap_*.json"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the lowest and highest rows again, for longer.")
    parser.add_argument("--folder", type=Path, default=keep.KEPT, metavar="DIR",
                        help="folder of the stored results (default: docs/figures/overlap)")
    parser.add_argument("--efficiency", type=float, default=0.9, metavar="E",
                        help="select rows over links below this efficiency (0.9)")
    parser.add_argument("--above", type=float, default=1.02, metavar="E",
                        help="select rows over links above this efficiency (1.02)")
    parser.add_argument("--speedup", type=float, default=0.99, metavar="S",
                        help="select rows without a link below this speed-up (0.99)")
    parser.add_argument("--speedup-above", type=float, default=math.inf, metavar="S",
                        help="select rows without a link above this speed-up (none)")
    parser.add_argument("--seconds", default="5", metavar="S", help="time to measure each row (5)")
    parser.add_argument("--list", action="store_true", help="only print the selected rows")
    arguments = parser.parse_args()
    rows = [row for row in report.Results(sorted(arguments.folder.glob("*.json"))).rows.values()
            if is_suspect(row, arguments)]
    for done, row in enumerate(rows, 1):
        print(f"{done} of {len(rows)}: {', '.join(row['what'].values())}, "
              f"{keep.SECTIONS[SECTION_OF[row['table']]]}", flush=True)
        if arguments.list:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                files = measure(row, arguments.seconds, Path(folder))
            except subprocess.CalledProcessError as error:
                sys.exit(f"again.py: run.sh ended with {error.returncode}")
            keep.keep_again(keep.read(files), arguments.folder, f"--seconds {arguments.seconds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
