"""bench/model: what is measured is summed up beside what was promised, and wrong words are refused."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import report

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "model"


def step(model, allowed, gains):
    return {"model": model, "layers": 1, "scale": 0.25, "tp": 2, "seq": 512, "dtype": "bf16",
            "link": "emulated link, 1 Gbit/s, 5 us", "comm_share": 0.1, "amdahl_gain_percent": allowed,
            "machine": "a machine",
            "schedules": [{"name": name, "step_ms": 1000.0, "gain_percent": gain}
                          for name, gain in {"serial": 0.0, **gains}.items()]}


class ProgramsTest(unittest.TestCase):
    def run_bench(self, folder, *words):
        return subprocess.run([BENCH / "run.sh", *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "BUILD": str(BUILD), "RESULTS": folder})

    def test_what_is_wrong_is_said_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (["--models", ""], ["--shares", "a"], ["--repeat"], ["--seq", "many"], ["--fast"]):
                with self.subTest(words):
                    result = self.run_bench(folder, *words)
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertTrue(result.stderr.startswith("usage: bench/model/run.sh"))

    def test_a_bar_is_met_by_all_or_not(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for share, gain in ("0.08", 9.0), ("0.105", 7.0):
                files.append(Path(folder) / f"model_llama2-70b_{share}.json")
                files[-1].write_text(json.dumps(step("llama2-70b", 10.0, {"pipelined parts=8": 8.5, "fused": gain})))
            results = report.Results(files)
            self.assertEqual(results.bars(), [
                ["pipelined parts=8: of what Amdahl allows, lowest of 2", "0.85", "0.80", "yes"],
                ["fused: of what Amdahl allows, lowest of 2", "0.70", "0.80", "**no**"]])
            self.assertEqual(results.tables()[1][2][1], ["llama2-70b", "0.25", "1 Gbit/s, 5 us", "10.0 %", "1000",
                                                         "10.0 %", "8.5 % (0.85)", "7.0 % (0.70)"])
            # A link of another share than was wanted is no row like the others.
            self.assertEqual(results.tables()[1][2][0][3], "**10.0 %**, not 8 %")


if __name__ == "__main__":
    unittest.main()
