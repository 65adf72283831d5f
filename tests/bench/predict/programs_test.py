"""bench/predict: errors of predictions are summed up and compared with the targets; wrong arguments are refused."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import steps
import report  # from the folder above, which steps has named

BUILD = Path(os.environ["PLAIT_BUILD"])
MEASURED = {"model": "a", "scale": 0.5, "tp": 2, "seq": 8, "link": "0.78gbit,5us",
            "comm_share": 0.2, "schedules": [{"name": "serial", "step_ms": 10}, {"name": "fused", "step_ms": 8}]}
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

    def test_a_step_is_predicted_of_the_rate_of_its_products(self):
        rows, rate, words = self.compare(MEASURED)
        # A rank has 6 x 8 x 100 x 1000 / 2 operations in 8 ms.
        self.assertAlmostEqual(rate, 0.0003)
        self.assertEqual(words[words.index("--link") + 1], "0.78gbit,5us")
        self.assertEqual(words[words.index("--memory") + 1], 5)
        self.assertEqual([(row["plan"], row["predicted_ms"]) for row in rows], [("serial", 9), ("fused", 9)])
        self.assertAlmostEqual(rows[0]["error"], -0.1)
        # Values that an older file does not record are the only ones of that time.
        self.assertEqual((words[words.index("--wire") + 1], words[words.index("--tokens") + 1]), ("f32", 8))
        self.assertFalse({"--no-sequence-parallel", "--keep-gathered", "--column-backward"} & set(words))

    def test_a_step_is_predicted_as_it_was_measured(self):
        rows, rate, words = self.compare({**MEASURED, "layers": 2, "batch": 3, "wire": "bf16", "column_backward": True,
                                          "sequence_parallel": False, "keep_gathered": False, "stand_in_ms": 2})
        # Two blocks and three times as many tokens take 6 ms of products: 2 of the 8 ms are waiting.
        self.assertAlmostEqual(rate, 0.0003 * 2 * 3 * 8 / 6)
        self.assertEqual((words[words.index("--wire") + 1], words[words.index("--tokens") + 1]), ("bf16", 24))
        self.assertLessEqual({"--no-sequence-parallel", "--column-backward"}, set(words))
        self.assertEqual([(row["tokens"], row["predicted_ms"]) for row in rows], [(24, 20), (24, 20)])
        with self.assertRaisesRegex(SystemExit, "a was measured in f32, but plait predict supports bf16 only"):
            self.compare({**MEASURED, "dtype": "f32"})

    def compare(self, measured):
        """The rows, and what plait predict was asked at last."""
        asked = []

        def predict(rate, words):
            asked.append((rate, words))
            layers = [{"in": 100, "out": 1000, "forward_ms": 3, "backward_ms": 6}]
            return {"plans": [{"plan": plan, "layers": layers} for plan in ("serial", "fused")]}
        rows = steps.compare(measured, predict, 5e9)
        return rows, *asked[-1]


if __name__ == "__main__":
    unittest.main()
