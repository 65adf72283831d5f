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
import report

RUN = Path(__file__).resolve().parent / "run.sh"


def is_suspect(section: str, row: dict, bounds: argparse.Namespace) -> bool:
    if section == "alone":
        return not bounds.speedup <= report.speedup(row, "fused") <= bounds.speedup_above
    if section != "link":
        return False
    found = report.efficiency(row, "fused")
    return found is not None and not bounds.efficiency <= found <= bounds.above


def measure(row: dict, section: str, seconds: str, folder: Path) -> list[Path]:
    """Measures one row; returns the files that run.sh has written."""
    shapes = folder / "shapes.txt"
    shapes.write_text(f"{row['m']} {row['n']} {row['k']}\n", encoding="utf-8")
    words = ["--only", section, "--kinds", row["kind"], "--operators", row["op"].replace("_", "-"),
             "--shapes", str(shapes), "--seconds", seconds]
    if section == "link":
        words += ["--ratios", row["ratio"]]
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
    rows = [(section, row) for (section, _), kept in report.Results(sorted(arguments.folder.glob("*.json"))).groups
            for row in kept if is_suspect(section, row, arguments)]
    for done, (section, row) in enumerate(rows, 1):
        ratio = f", ratio {row['ratio']}" if section == "link" else ""
        print(f"{done} of {len(rows)}: {row['op']}, {row['kind']}, {report.shape_of(row)}, {report.SECTIONS[section]}"
              f"{ratio}", flush=True)
        if arguments.list:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                files = measure(row, section, arguments.seconds, Path(folder))
            except subprocess.CalledProcessError as error:
                sys.exit(f"again.py: run.sh ended with {error.returncode}")
            keep.keep_again(keep.read(files), arguments.folder, f"--seconds {arguments.seconds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
