#!/usr/bin/env python3
"""Sums up the results of `./do bench plans`, and compares them with the targets of automatic plans.

    bench/plans/report.py build/bench/plans_*.json
    bench/plans/report.py --update docs/lab/automatic-plans.md build/bench/plans_*.json
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import page  # noqa: E402


# The fastest of each plan's repetitions; all plans have the same number. If other programs take a third of a processor
# for seconds, a median of a dozen depends on whose turn that was.
TIME = "min_ms"


def time_of(one: dict, plan: str) -> float:
    return next(s[TIME] for s in one["schedules"] if s["plan"] == plan)


def best_of(one: dict) -> dict:
    return min(one["schedules"], key=lambda s: s[TIME])


def of_best(one: dict, who: str) -> float:
    """1: as fast as the fastest of all plans; less if it is slower."""
    return best_of(one)[TIME] / time_of(one, one[who])


def over_serial(one: dict, who: str) -> float:
    return time_of(one, "serial") / time_of(one, one[who])


def scatter(one: dict) -> float:
    """The spread of the ratios of predictions and times: 0 if they are proportional."""
    ratios = [one["predicted_ms"][s["plan"]] / s[TIME] for s in one["schedules"] if s["plan"] in
              one["predicted_ms"]]
    middle = statistics.median(ratios)
    return max(abs(ratio / middle - 1) for ratio in ratios)


class Results:
    def __init__(self, files: list[Path]):
        self.all = [one for file in files for one in conditions.read(file)]

    def conditions(self) -> str:
        ranks = conditions.agreed("numbers of ranks", (one["ranks"] for one in self.all))
        transport = conditions.agreed("transports", (one["transport"] for one in self.all))
        return (f"{conditions.where(self.all)}, {ranks} ranks over {transport}, `./do bench plans`. Links are "
                f"emulated.{conditions.load(self.all, ranks)}")

    def bars(self) -> list[list[str]]:
        rows = []

        def add(what: str, value: float, bar: float) -> None:
            rows.append([what, f"{value:.3f}", f"{bar:.2f}", page.met(value >= bar)])

        for who, text in (("tuned", "plait tune's plan"), ("model", "the model's plan")):
            found = [of_best(one, who) for one in self.all]
            add(f"{text} over the best of all, geometric mean of {len(found)}", page.mean(found), 0.97)
            add(f"{text} over the best of all, lowest", min(found), 0.97)
            add(f"{text} over serial, lowest", min(over_serial(one, who) for one in self.all), 0.99)
        return rows

    def tables(self) -> list[page.Table]:
        rows = [[one["op"], f"{one['m']} x {one['n']} x {one['k']}", f"{one['ratio']:g}" if one["ratio"] else "no link",
                 f"{time_of(one, 'serial'):.1f}", f"{best_of(one)['plan']}", f"{best_of(one)[TIME]:.1f}",
                 one["model"], f"{of_best(one, 'model'):.3f}", one["tuned"], f"{of_best(one, 'tuned'):.3f}",
                 f"{100 * scatter(one):.0f}"] for one in self.all]
        return [
            ("Automatic plans: what was promised", ["figure", "measured", "bar", "met"], self.bars()),
            ("Automatic plans beside all others",
             ["operator", "m x n x k", "collective / product", "serial, ms", "the best of all", "ms", "the model's",
              "of the best", "plait tune's", "of the best", "predictions off by, %"], rows),
        ]


if __name__ == "__main__":
    sys.exit(page.main("plans", Results))
