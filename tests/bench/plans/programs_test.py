"""bench/plans: automatic plans and all others are measured, for every kind of problem."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "plans"
FIGURES = ("ranks 2\nthreads 1\ncopy 5\nsum 10\nchunk 300\nstart 2000\nnarrow 0.05\nbeside 1.1\nuncertainty 0.03\n"
           "product bf16 64 90\nproduct f32 64 70\ntransport shm 500 0\nend\n")


def profile_of_this_machine(folder):
    """Invented figures: measuring takes half a minute, and no test depends on them."""
    cache = Path(folder) / "cache"
    cache.write_text("plait plans 2\nmachine nowhere\n")
    said = subprocess.run([BUILD / "app/cli/plait", "tune", "--show", "--cache", cache], capture_output=True, text=True,
                          check=False).stderr
    machine = re.search(r'and this is "(.+)"\n', said)[1]
    return f"plait profile 2\nmachine {machine}\n{FIGURES}"


class ProgramsTest(unittest.TestCase):
    def run_bench(self, folder, *words):
        return subprocess.run([BENCH / "run.sh", *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "BUILD": str(BUILD), "RESULTS": folder})

    def test_both_automatic_plans_are_among_those_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "plans_cache.profile").write_text(profile_of_this_machine(folder))
            shapes = Path(folder) / "shapes.txt"
            shapes.write_text("# m n k\n64 256 128\n")
            # The last run sums up both.
            for operator, ratios in (("matmul-reduce-scatter", [0, 1]), ("all-reduce-matmul", [1])):
                result = self.run_bench(folder, "--shapes", shapes, "--seconds", "0.01", "--ratios",
                                        ",".join(map(str, ratios)), "--operators", operator)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                found = json.loads((Path(folder) / f"plans_{operator}.json").read_text())
                self.assertLessEqual({"date", "processor", "load"}, set(found["conditions"]))
                self.assertEqual([row["what"]["collective / product"] for row in found["rows"]],
                                 ["no link" if ratio == 0 else str(ratio) for ratio in ratios])
                for row in found["rows"]:
                    values = row["values"]
                    for name in ("model's, of the best", "tune's, of the best"):
                        self.assertTrue(0 < values[name] <= 1, values)
                    self.assertLessEqual(values["ms"], values["serial, ms"])
            self.assertIn("plait tune's plan over the best of all, geometric mean of 3", result.stdout)


if __name__ == "__main__":
    unittest.main()
