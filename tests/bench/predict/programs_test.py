"""bench/predict: errors of predictions are summed up and compared with the targets; wrong arguments are refused."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import steps
import report  # from the folder above, which steps has named

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "predict"


class ProgramsTest(unittest.TestCase):
    def test_what_is_wrong_is_said_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (["--only", "matmul"], ["--only"], ["--seconds", "many"], ["--fast"]):
                with self.subTest(words):
                    result = subprocess.run([BENCH / "run.sh", *words], capture_output=True, text=True, check=False,
                                            env={**os.environ, "BUILD": str(BUILD), "RESULTS": folder})
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertTrue(result.stderr.startswith("usage: bench/predict/run.sh"))

    def test_a_bar_is_met_by_all_or_not(self):
        operators = [{"op": "matmul_all_reduce", "m": m, "n": 64, "k": 32, "link_bytes_per_second": 1.25e8,
                      "plan": plan, "measured_ms": 100, "predicted_ms": 100 * (1 + error), "error": error}
                     for m, plan, error in ((8, "serial", 0.02), (8, "fused", -0.3), (16, "fused", 0.1))]
        step = {"model": "a", "scale": 0.5, "tokens": 8, "comm_share": 0.12, "plan": "serial", "measured_ms": 100.0,
                "predicted_ms": 95.0, "error": -0.05}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "errors.json"
            report.write(file, steps.document(operators, [step]))
            results = report.Results([file])
        self.assertEqual(results.tables()[0][2], [
            ["operators' times, error of the prediction, highest of 3", "30.0 %", "<= 10.0 %", "**no**"],
            ["operators' times, error of the prediction, median of 3", "10.0 %", "", ""],
            ["training steps' times, error of the prediction, highest of 1", "5.0 %", "<= 10.0 %", "yes"],
            ["training steps' times, error of the prediction, median of 1", "5.0 %", "", ""]])
        self.assertEqual(results.table("operators' times")[2][1],
                         ["matmul_all_reduce", "fused", "8 x 64 x 32", "1 Gbit/s", "100", "70.00", "-30.0 %", "30.0 %"])
        self.assertEqual(results.table("training steps' times")[2], [
            ["a, widths x 0.5, 8 tokens", "serial", "12 %", "100.0", "95.00", "-5.0 %", "5.0 %"]])


if __name__ == "__main__":
    unittest.main()
