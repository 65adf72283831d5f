#!/usr/bin/env python3
"""Sums up the results of `./do bench model`, and compares them with plait's targets.

    bench/model/report.py build/bench/model_*.json
    bench/model/report.py --update docs/lab/training-steps.md build/bench/model_*.json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import page  # noqa: E402


BAR = 0.80  # share of what Amdahl's law allows
FAR_OFF = 0.1  # as a share of the wanted value: no link was found for it


def plan_of(one: dict, plan: str) -> dict:
    return next(s for s in one["schedules"] if s["name"] == plan)


def plans(one: dict) -> list[str]:
    return [s["name"] for s in one["schedules"][1:]]


def show_share(one: dict) -> str:
    found, wanted = one["comm_share"], one["wanted"]
    shown = f"{100 * found:.1f} %"
    return shown if abs(found - wanted) <= FAR_OFF * wanted else f"**{shown}**, not {100 * wanted:g} %"


def of_allowed(one: dict, plan: str) -> float:
    return plan_of(one, plan)["gain_percent"] / one["amdahl_gain_percent"]


class Results:
    """Files are called model_MODEL-WIRE_SHARE.json."""

    def __init__(self, files: list[Path]):
        steps = [{"wire": "f32", **one, "wanted": float(file.stem.rpartition("_")[2])}
                 for file in files for one in conditions.read(file)]
        self.steps = sorted(steps, key=lambda one: (one["wire"], one["model"], one["wanted"]))

    def conditions(self) -> str:
        first = self.steps[0]
        ranks = conditions.agreed("numbers of ranks", (one["tp"] for one in self.steps))
        tokens = first["seq"] * first.get("batch", 1)
        return (f"{conditions.where(self.steps)}, {ranks} ranks, `./do bench model`; {first['layers']} block, {tokens} "
                f"tokens, {first['dtype']}. Links are emulated.{conditions.load(self.steps, ranks)}")

    def bars(self) -> list[list[str]]:
        rows = []
        for wire in sorted({one["wire"] for one in self.steps}):
            steps = [one for one in self.steps if one["wire"] == wire]
            for plan in plans(steps[0]):
                lowest = min(of_allowed(one, plan) for one in steps)
                rows.append([f"{plan}, sums in {wire}: of what Amdahl allows, lowest of {len(steps)}", f"{lowest:.2f}",
                             f"{BAR:.2f}", page.met(lowest >= BAR)])
        return rows

    def tables(self) -> list[page.Table]:
        names = plans(self.steps[0])
        steps = [[one["model"], f"{one['scale']:g}", one["wire"], one["link"],
                  show_share(one),
                  f"{one['schedules'][0]['step_ms']:.0f}", f"{one['amdahl_gain_percent']:.1f} %",
                  *(f"{plan_of(one, name)['gain_percent']:.1f} % ({of_allowed(one, name):.2f})" for name in names)]
                 for one in self.steps]
        return [
            ("Training steps: what was promised", ["figure", "measured", "bar", "met"], self.bars()),
            ("Training steps over emulated links: gain over the serial step, and of what Amdahl's law allows",
             ["model", "widths x", "sums in", "link", "communication", "serial step, ms", "allowed", *names], steps),
        ]


if __name__ == "__main__":
    sys.exit(page.main("model", Results))
