"""report.py: the rounds of each ratio, the targets that are met, and the update of a page."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import report

PROCESSOR = {"processor": "A", "threads": "1", "n": "100", "k": "50", "load_avg": [1.5, 1, 1],
             "date": "2026-11-21T10:00:00", "compiler": "12", "onednn": "2.6", "peak_bf16": "AMX",
             "backend_bf16": "amx"}


def run(times, context=None):
    """times: {name: [µs of each repetition]}"""
    benchmarks = [
        {"name": name, "run_type": "iteration", "real_time": 2 * us, "cpu_time": us, "time_unit": "us",
         "flops": 5e9}
        for name, repetitions in times.items()
        for us in repetitions
    ]
    benchmarks += [{"name": name, "run_type": "aggregate"} for name in times]
    return {"context": PROCESSOR if context is None else context, "benchmarks": benchmarks}


def square(plait, onednn):
    return run({"square/bf16/plait/512/real_time": plait, "square/bf16/onednn/512/real_time": onednn,
                "square/bf16/peak/0/real_time": [10]})


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def results(self, **runs):
        paths = [self.folder / f"{name}.json" for name in runs]
        for path, content in zip(paths, runs.values()):
            path.write_text(json.dumps(content))
        return paths, report.Results(paths)

    def test_ratios_are_of_one_round(self):
        case = report.Case("square", "bf16", "plait", 512)
        # Everything took twice as long in round 2.
        _, results = self.results(gemm_square_1=square([10, 11, 99], [22]),
                                  gemm_square_2=square([20], [40]),
                                  gemm_square_3=square([10], [15]))
        self.assertAlmostEqual(results.speed_up(case, ("onednn", "torch")), 2.0)
        self.assertAlmostEqual(results.gigaflops(case), 2 * 512 * 100 * 50 / 11e-6 * 1e-9)

    def test_torch_is_compared_within_its_round(self):
        torch = run({"square/bf16/torch/512": [8]}, {"torch": "2.13"})
        _, results = self.results(gemm_square_1=square([10], [20]), gemm_torch_square_1=torch)
        case = report.Case("square", "bf16", "plait", 512)
        self.assertAlmostEqual(results.speed_up(case, report.RIVALS), 0.8)
        self.assertIn("beside oneDNN 2.6 and torch 2.13", results.conditions())

    def test_the_part_of_the_peak_is_in_processor_time(self):
        _, results = self.results(gemm_square_1=square([100], [100]))
        # 5e9 a second of wall-clock time is twice that of processor time, in which half was spent.
        part = results.of_peak(report.Case("square", "bf16", "plait", 512))
        self.assertAlmostEqual(part, 2 * 512 * 100 * 50 / 100e-6 / 10e9)

    def test_promises_say_what_is_met(self):
        _, results = self.results(gemm_square_1=square([10], [9]))
        self.assertEqual(
            [(row[1], row[3], row[4]) for row in report.promises(results)],
            [("0.90", "0.97, mean 1.00", "**no**"), ("51.20", "0.92", "yes")],
        )
        for rival, met in (([10], "yes"), ([9.8], "**no**")):  # none below 0.97, but the mean is
            _, results = self.results(gemm_square_1=square([10], rival))
            self.assertEqual(report.promises(results)[0][4], met)

    def test_two_threads_are_beside_one_in_wall_clock_time(self):
        # 5e9 per second of wall-clock time is twice as much per second of processor time, half of which was used.
        threads = run({"square/bf16/one_thread/512": [10], "square/bf16/two_threads/512": [6],
                       "square/f32/one_thread/512": [10], "square/f32/two_threads/512": [5]},
                      {**PROCESSOR, "threads": "2"})
        for one in threads["benchmarks"]:
            if "two_threads" in one["name"] and "cpu_time" in one:
                one["cpu_time"] = one["real_time"] * 2
        _, results = self.results(gemm_square_1=square([10], [20]), gemm_two_threads_1=threads)
        self.assertEqual(report.two_threads(results)[2], [["512", "1.67", "2.00"]])
        self.assertIn(["bf16, square, M = 512: two threads beside one", "1.67", "1.67", "1.90", "**no**"],
                      report.promises(results))
        self.assertIn("threads: 1", results.conditions())

    def test_few_rows_are_beside_reading_the_weight(self):
        few = {f"square/bf16/{who}/{m}/real_time": [us]
               for who, m, us in (("plait", 16, 20), ("onednn", 16, 19), ("plait", 4, 10), ("onednn", 4, 12),
                                  ("plait", 1, 10), ("onednn", 1, 9.5), ("memory", 1, 8))}
        _, results = self.results(gemm_square_1=run(few))
        rows = {row[0]: (row[1], row[4]) for row in report.promises(results)}
        self.assertEqual(rows["bf16, square, M = 16: the rate of oneDNN packed"], ("0.95", "yes"))
        for m in (4, 1):
            self.assertEqual(rows[f"bf16, square, M = {m}: the rate of {report.FASTEST_OF_FEW}"], ("0.80", "**no**"))
        self.assertEqual(report.square(results, "bf16")[1][-3], "reading the weight")
        self.assertEqual(report.square(results, "bf16")[2][0][-3], "1")

    def test_f16_is_beside_bf16(self):
        half = run({"square/f16/plait/512/real_time": [11], "square/f16/plait/16/real_time": [99]})
        _, results = self.results(gemm_square_1=square([10], [20]), gemm_square_f16_1=half)
        self.assertIn(["f16, square, M >= 128: the rate of bf16", "0.91", "0.91", "0.97", "**no**"],
                      report.promises(results))

    def test_a_page_is_updated_between_its_marks(self):
        page = self.folder / "page.md"
        begin, end = report.page.marks("gemm")
        page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
        layer = run({"bloom_7b.up/bf16/plait/16/real_time": [10],
                     "bloom_7b.up/bf16/onednn/16/real_time": [15]})
        paths, _ = self.results(gemm_square_1=square([10], [20]), **{"gemm_bloom_7b.up_1": layer})
        with mock.patch.object(sys, "argv", ["report.py", "--update", str(page), *map(str, paths)]):
            report.main()
        text = page.read_text()
        self.assertTrue(text.startswith(f"before\n{begin}\n2026-11-21: A, threads: 1"))
        self.assertTrue(text.endswith(f"{end}\nafter\n"))
        self.assertNotIn("old", text)
        self.assertIn("| 512 | 512 | 256 | 5120 | 2.00 |", text)
        self.assertIn("| bloom-7b, up | 100 x 50 | 16 (1.50) |", text)


if __name__ == "__main__":
    unittest.main()
