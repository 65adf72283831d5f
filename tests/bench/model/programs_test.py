"""bench/model: results are summed up and compared with the targets, and wrong arguments are refused."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import report
import conditions  # from the folder above, which report has named

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "model"


def step(model, allowed, gains):
    return {"model": model, "layers": 1, "scale": 0.25, "tp": 2, "seq": 512, "dtype": "bf16",
            "link": "1gbit,5us", "comm_share": 0.1, "amdahl_gain_percent": allowed,
            "machine": "a machine",
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
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for share, gain in ("0.08", 9.0), ("0.105", 7.0):
                files.append(Path(folder) / f"model_llama2-70b_{share}.json")
                files[-1].write_text(json.dumps(step("llama2-70b", 10.0, {"pipelined parts=8": 8.5, "fused": gain})))
            # Sums sent in other dtypes belong to other steps; older files do not record the dtype.
            files.append(Path(folder) / "model_llama2-70b-bf16_0.1.json")
            files[-1].write_text(json.dumps({**step("llama2-70b", 10.0, {"pipelined parts=8": 8.5, "fused": 8.1}),
                                             "wire": "bf16"}))
            results = report.Results(files)
            self.assertEqual(results.bars(), [
                ["pipelined parts=8, sums in bf16: of what Amdahl allows, lowest of 1", "0.85", "0.80", "yes"],
                ["fused, sums in bf16: of what Amdahl allows, lowest of 1", "0.81", "0.80", "yes"],
                ["pipelined parts=8, sums in f32: of what Amdahl allows, lowest of 2", "0.85", "0.80", "yes"],
                ["fused, sums in f32: of what Amdahl allows, lowest of 2", "0.70", "0.80", "**no**"]])
            self.assertEqual(results.tables()[1][2][2], ["llama2-70b", "0.25", "f32", "1gbit,5us", "10.0 %",
                                                         "1000", "10.0 %", "8.5 % (0.85)", "7.0 % (0.70)"])
            # A link with another share than requested is marked.
            self.assertEqual(results.tables()[1][2][1][4], "**10.0 %**, not 8 %")

    def conditions(self, folder, *steps):
        files = [Path(folder) / f"model_some_{number}.json" for number, _ in enumerate(steps)]
        for file, one in zip(files, steps):
            file.write_text(json.dumps(one))
            os.utime(file, (0, 86400 * (365.25 * 40 + 0.5)))  # the first of January 2010
        return report.Results(files).conditions()

    def test_the_days_are_those_of_measuring(self):
        known = {"date": "2026-11-22", "processor": "a machine (family 1, model 2)", "commit": "ab12", "load": 2.1}
        old = step("llama2-70b", 10.0, {"fused": 9.0})
        new = {**old, "batch": 3, "conditions": known}
        later = {**old, "conditions": {**known, "date": "2026-11-25", "commit": "cd34", "load": 1.9}}
        rest = "2 ranks, `./do bench model`; 1 block, {} tokens, bf16. Links are emulated."
        with tempfile.TemporaryDirectory() as folder:
            # An older file has no date of its own, so the file's date counts.
            self.assertEqual(self.conditions(folder, old), "2010-01-01: a machine, " + rest.format(512))
            self.assertEqual(self.conditions(folder, new),
                             "2026-11-22: a machine (family 1, model 2), commit ab12, " + rest.format(1536) +
                             " Load when measured 2.1: 2 is the benchmark's own.")
            self.assertEqual(self.conditions(folder, later, new),
                             "2026-11-22 to 2026-11-25: a machine (family 1, model 2), commits ab12, cd34, " +
                             rest.format(512) + " Load when measured 1.9 to 2.1: 2 is the benchmark's own.")
            self.assertTrue(self.conditions(folder, new, old).startswith("2010-01-01 to 2026-11-22: a machine (family"))

    def test_what_was_measured_elsewhere_is_no_row_of_the_table(self):
        one = step("llama2-70b", 10.0, {"fused": 9.0})
        here, there = ({**one, "conditions": {"date": "2026-11-22", "processor": name}} for name in "AB")
        with tempfile.TemporaryDirectory() as folder:
            for steps, sentence in (((one, {**one, "machine": "another"}), "machines: a machine and another"),
                                    ((here, there), "processors: A and B"),
                                    ((one, {**one, "tp": 3}), "numbers of ranks: 2 and 3")):
                with self.assertRaisesRegex(SystemExit, f"^these files are of different {sentence}$"):
                    self.conditions(folder, *steps)

    def test_conditions_are_put_beside_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            for found in {"m": 1}, [{"m": 1}, {"m": 2}]:
                file.write_text(json.dumps(found))
                subprocess.run([BENCH.parent / "conditions.py", file], check=True)
                kept = json.loads(file.read_text())
                rows = kept if isinstance(found, list) else [kept]
                self.assertEqual([row["m"] for row in rows], [1, 2][:len(rows)])
                for row, read in zip(rows, conditions.read(file)):
                    self.assertLessEqual({"date", "processor", "load"}, set(row["conditions"]))
                    self.assertEqual(row, read)


if __name__ == "__main__":
    unittest.main()
