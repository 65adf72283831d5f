"""report.py: the comparison of automatic plans, and the targets that are met."""

import json
import tempfile
import unittest
from pathlib import Path

import report

PROBLEM = {"op": "matmul_all_reduce", "m": 512, "n": 64, "k": 32, "ranks": 2, "transport": "shm", "machine": "A",
           "conditions": {"date": "2026-11-25", "load": 2.0},
           "ratio": 1, "model": "fused", "tuned": "pipelined parts=8",
           "schedules": [{"plan": "serial", "min_ms": 10}, {"plan": "fused", "min_ms": 8},
                         {"plan": "pipelined parts=8", "min_ms": 5}],
           "predicted_ms": {"serial": 5, "fused": 4, "pipelined parts=8": 3}}


class ReportTest(unittest.TestCase):
    def results(self, *problems):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plans_some.json"
            path.write_text(json.dumps(problems))
            return report.Results([path])

    def bars(self, *problems):
        return {row[0]: tuple(row[1:]) for row in self.results(*problems).bars()}

    def test_plans_are_compared_with_the_best_and_with_serial(self):
        bars = self.bars(PROBLEM)
        self.assertEqual(bars["plait tune's plan over the best of all, lowest"], ("1.000", "0.97", "yes"))
        self.assertEqual(bars["the model's plan over the best of all, lowest"], ("0.625", "0.97", "**no**"))
        self.assertEqual(bars["the model's plan over serial, lowest"], ("1.250", "0.99", "yes"))

    def test_the_days_are_those_of_measuring(self):
        rest = ": A, 2 ranks over shm, `./do bench plans`. Links are emulated. Load when measured 2.0: 2 is the " \
               "benchmark's own."
        self.assertEqual(self.results(PROBLEM).conditions(), "2026-11-25" + rest)
        earlier = {**PROBLEM, "conditions": {"date": "2026-11-22"}}
        self.assertEqual(self.results(PROBLEM, earlier).conditions(), "2026-11-22 to 2026-11-25" + rest)
        for key, value, sentence in (("machine", "B", "machines: A and B"),
                                     ("transport", "mpi", "transports: mpi and shm")):
            with self.assertRaisesRegex(SystemExit, f"^these files are of different {sentence}$"):
                self.results(PROBLEM, {**PROBLEM, key: value}).conditions()

    def test_the_worst_counts(self):
        slow = {**PROBLEM, "tuned": "slow", "schedules": [*PROBLEM["schedules"], {"plan": "slow", "min_ms": 20}]}
        bars = self.bars(PROBLEM, slow)
        self.assertEqual(bars["plait tune's plan over serial, lowest"], ("0.500", "0.99", "**no**"))
        self.assertEqual(bars["plait tune's plan over the best of all, geometric mean of 2"],
                         ("0.500", "0.97", "**no**"))

    def test_predictions_are_judged_by_their_proportions(self):
        # The predictions are 0.5, 0.5 and 0.6 times the measured times.
        self.assertEqual(self.results(PROBLEM).tables()[1][2][0][-1], "20")


if __name__ == "__main__":
    unittest.main()
