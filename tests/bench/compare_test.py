"""./do bench compare: products of few quantised rows, with one build beside itself."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class CompareTest(unittest.TestCase):
    def test_few_rows(self):
        build = os.environ["PLAIT_BUILD"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "compare.json")
            run = subprocess.run([sys.executable, "-B", ROOT / "bench/compare/compare.py", build, build, "--few-rows",
                                  "--rounds", "4", "--seconds", "0.01", "--json", file],
                                 capture_output=True, text=True, check=False, timeout=500)
            self.assertIn(run.returncode, (0, 1), run.stderr)  # 1: slower than itself, by more than the noise
            self.assertTrue(file.exists(), run.stderr)
            found = json.loads(file.read_text())
        self.assertEqual(found["conditions"]["command"], "./do bench compare OLD --few-rows --seconds 0.01")
        self.assertEqual({row["what"]["case"] for row in found["rows"]}, {
            f"{rows} rows, {dtype} by {bits}:{scale}" for rows in (1, 2, 4) for dtype in ("bf16", "f32")
            for bits in ("s8", "s4") for scale in ("group=128", "channel")})
        for row in found["rows"]:
            self.assertEqual((len(row["values"]["old"]), len(row["values"]["new"])), (4, 4), row)
            self.assertEqual(row["band"], row["what"]["case"].split()[2])


if __name__ == "__main__":
    unittest.main()
