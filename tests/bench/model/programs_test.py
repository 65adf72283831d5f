"""bench/model: results are summed up and compared with the targets, and wrong arguments are refused."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import report  # from the folder above
import rows

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "model"


def step(model, allowed, gains):
    return {"model": model, "layers": 1, "scale": 0.25, "tp": 2, "seq": 512, "dtype": "bf16",
            "wire": "bf16", "link": "1gbit,5us", "comm_share": 0.1,
            "amdahl_gain_percent": allowed,
            "schedules": [{"name": name, "step_ms": 1000.0, "gain_percent": gain}
                          for name, gain in {"serial": 0.0, **gains}.items()]}


class ProgramsTest(unittest.TestCase):
    def run_bench(self, folder, *words):
        return subprocess.run([BENCH / "run.sh", *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "BUILD": str(BUILD), "RESULTS": folder})

    def test_what_is_wrong_is_said_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (["--models", ""], ["--shares", "a"], ["--repeat"], ["--seq", "many"], ["--wire", "b f"],
                          ["--fast"]):
                with self.subTest(words):
                    result = self.run_bench(folder, *words)
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertTrue(result.stderr.startswith("usage: bench/model/run.sh"))

    def test_a_bar_is_met_by_all_or_not(self):
        steps = [(0.08, "f32", 9.0), (0.105, "f32", 7.0), (0.1, "bf16", 8.1)]  # wanted share, sums, gain of fused
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for wanted, wire, gain in steps:
                one = {**step("llama2-70b", 10.0, {"pipelined parts=8": 8.5, "fused": gain}), "wire": wire}
                measured, wanted_file = Path(folder) / "step.json", Path(folder) / f"model_{wire}_{wanted}.json"
                measured.write_text(json.dumps(one))
                subprocess.run([BENCH / "rows.py", measured, str(wanted), wanted_file], check=True)
                files.append(wanted_file)
            results = report.Results(files)
        self.assertEqual(results.tables()[0][2], [
            ["pipelined parts=8, sums in f32: of what Amdahl allows, lowest of 2", "0.850", ">= 0.8", "yes"],
            ["fused, sums in f32: of what Amdahl allows, lowest of 2", "0.700", ">= 0.8", "**no**"],
            ["pipelined parts=8, sums in bf16: of what Amdahl allows, lowest of 1", "0.850", ">= 0.8", "yes"],
            ["fused, sums in bf16: of what Amdahl allows, lowest of 1", "0.810", ">= 0.8", "yes"]])
        # A link with another share than requested is marked.
        self.assertEqual([row[5] for row in results.table(rows.TABLE)[2]], ["**10.0 %**", "10.0 %", "10.0 %"])
        self.assertEqual(results.table(rows.TABLE)[2][1], [
            "llama2-70b", "0.25", "f32", "0.105", "1gbit,5us", "10.0 %", "1000", "10.0 %", "8.5 %", "0.850", "7.0 %",
            "0.700"])
        for found in results.documents:
            self.assertLessEqual({"date", "processor", "load"}, set(found["conditions"]))

    def test_a_gain_that_is_impossible_is_not_shown(self):
        one = step("llama2-70b", 10.0, {"pipelined parts=8": 8.5, "fused": 50.0})
        one["schedules"][2]["step_ms"] = 700.0  # the products alone take 900 of 1000
        found = rows.document(one, 0.1)
        values = found["rows"][0]["values"]
        self.assertEqual((values["pipelined parts=8"], values["fused"]), (0.085, "**disturbed, repeat**"))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.json"
            report.write(file, found)
            results = report.Results([file])
            self.assertIn("**disturbed, repeat**", results.table(rows.TABLE)[2][0])
            results.tables()


if __name__ == "__main__":
    unittest.main()
