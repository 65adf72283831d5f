#!/usr/bin/env python3
"""Sums up how close predictions are to the results of bench/predict/run.sh, and compares that with plait's targets.

    bench/predict/report.py build/predict/*.json
    bench/predict/report.py --update docs/lab/prediction.md build/predict/*.json
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import page  # noqa: E402


BAR = 0.10  # the largest acceptable error of a prediction


def off(rows: list[dict]) -> list[float]:
    return [abs(row["error"]) for row in rows]


class Results:
    """measured_*.json and model_*.json have measurements; predicted.json and step_*.json have predictions."""

    def __init__(self, files: list[Path]):
        self.measured = [row for file in files if file.name.startswith(("measured_", "model_"))
                         for row in conditions.read(file)]
        predicted = next(file for file in files if file.name == "predicted.json")
        self.rows = json.loads(predicted.read_text(encoding="utf-8"))
        self.steps = [row for file in files if file.name.startswith("step_")
                      for row in json.loads(file.read_text(encoding="utf-8"))]

    def conditions(self) -> str:
        ranks = conditions.agreed("numbers of ranks", (row["ranks"] for row in self.rows))
        return (f"{conditions.where(self.measured)}, {ranks} ranks, `./do bench predict`; links are emulated. *Off* is "
                f"how much more was predicted than measured.{conditions.load(self.measured, ranks)}")

    def within(self, rows: list[dict]) -> int:
        return sum(error <= BAR for error in off(rows))

    def bars_of(self, what: str, rows: list[dict]) -> list[list[str]]:
        if not rows:
            return []
        share = self.within(rows) / len(rows)
        return [[f"of {len(rows)} {what}, within {100 * BAR:.0f} %", f"{share:.2f}", "1.00", page.met(share == 1)],
                [f"off, median of {what}", f"{100 * statistics.median(off(rows)):.1f} %", "", ""]]

    def bars(self) -> list[list[str]]:
        return self.bars_of("operators' times", self.rows) + self.bars_of("training steps' times", self.steps)

    def step_table(self) -> list[list[str]]:
        return [[f"{row['model']}, widths x {row['scale']:g}, {row['tokens']} tokens", row["plan"],
                 f"{100 * row['comm_share']:.0f} %", f"{row['measured_ms']:.1f} ms", f"{row['predicted_ms']:.1f} ms",
                 f"{100 * row['error']:+.1f} %"] for row in self.steps]

    def tables(self) -> list[page.Table]:
        cases = dict.fromkeys((row["op"], row["plan"]) for row in self.rows)
        table = []
        for op, plan in cases:
            rows = [row for row in self.rows if (row["op"], row["plan"]) == (op, plan)]
            largest = max((row["error"] for row in rows), key=abs)
            table.append([op, plan, str(len(rows)), str(self.within(rows)),
                          f"{100 * statistics.median(off(rows)):.1f} %", f"{100 * largest:+.1f} %"])
        return [
            ("Predictions: what was promised", ["figure", "measured", "bar", "met"], self.bars()),
            ("Predictions of plans' times",
             ["operator", "plan", "cases", f"within {100 * BAR:.0f} %", "off, median", "off at most"], table),
            ("Predictions of training steps",
             ["step", "plan", "communication in serial", "measured", "predicted", "off"], self.step_table()),
        ]


if __name__ == "__main__":
    sys.exit(page.main("predict", Results))
