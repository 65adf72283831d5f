"""measure.py: automatic plans beside the best of all and beside serial, and the targets that are met."""

import os
import tempfile
import unittest
from pathlib import Path

os.environ |= {"PLAIT_COMMAND": "", "RESULTS": ""}
import measure  # noqa: E402, it reads these
import report  # noqa: E402, from the folder above, which measure has named

TIMES = {"serial": 10, "fused": 8, "pipelined parts=8": 5}
PREDICTED = {"serial": 5, "fused": 4, "pipelined parts=8": 3}


def row(tuned="pipelined parts=8", m=512, equal=True, **times):
    found = {"op": "matmul_all_reduce", "m": m, "n": 64, "k": 32,
             "schedules": [{"plan": plan, "min_ms": ms, "bits_equal": equal} for plan, ms in (TIMES | times).items()]}
    return measure.row_of(found, 1, "fused", tuned, PREDICTED)


class MeasureTest(unittest.TestCase):
    def bars(self, *rows):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plans.json"
            report.write(file, {"conditions": {}, "rows": rows, "bars": measure.bars()})
            return {bar[0]: tuple(bar[1:]) for bar in report.Results([file]).tables()[0][2]}

    def test_plans_are_compared_with_the_best_and_with_serial(self):
        bars = self.bars(row())
        self.assertEqual(bars["plait tune's plan over the best of all, lowest of 1"], ("1.000", ">= 0.97", "yes"))
        self.assertEqual(bars["the model's plan over the best of all, lowest of 1"], ("0.625", ">= 0.97", "**no**"))
        self.assertEqual(bars["the model's plan over serial, lowest of 1"], ("1.250", ">= 0.99", "yes"))

    def test_plans_with_different_results_are_no_row(self):
        with self.assertRaisesRegex(SystemExit, "the plans of matmul_all_reduce have different results"):
            row(equal=False)


if __name__ == "__main__":
    unittest.main()
