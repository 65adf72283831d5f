"""bench/predict: how near predictions were is summed up beside what was promised, and wrong words are refused."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import report

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
        with tempfile.TemporaryDirectory() as folder:
            measured, predicted = (Path(folder) / name for name in ("measured_a-1.json", "predicted.json"))
            measured.write_text(json.dumps({"machine": "a machine"}))
            predicted.write_text(json.dumps([
                {"op": "matmul_all_reduce", "plan": plan, "ranks": 2, "error": error}
                for plan, error in (("serial", 0.02), ("fused", -0.3), ("fused", 0.1))]))
            results = report.Results([measured, predicted])
            self.assertEqual(results.bars(), [["of 3 plans' times, within 10 %", "0.67", "1.00", "**no**"],
                                              ["off, median", "10.0 %", "", ""]])
            self.assertEqual(results.tables()[1][2], [
                ["matmul_all_reduce", "serial", "1", "1", "2.0 %", "+2.0 %"],
                ["matmul_all_reduce", "fused", "2", "1", "20.0 %", "-30.0 %"]])
            self.assertIn("a machine, 2 ranks", results.conditions())


if __name__ == "__main__":
    unittest.main()
