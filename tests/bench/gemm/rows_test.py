"""rows.py: the rounds of each ratio, and the targets that are met."""

import json
import tempfile
import unittest
from pathlib import Path

import rows
import report  # from the folder above, which rows has named

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


class RowsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def results(self, **runs):
        paths = [self.folder / f"{name}.json" for name in runs]
        for path, content in zip(paths, runs.values()):
            path.write_text(json.dumps(content))
        return rows.Results(paths)

    def shown(self, results):
        """Bars and the other tables, by title, as bench/report.py shows them."""
        file = self.folder / "document.json"
        report.write(file, results.document())
        return {title: {row[0] if title == "What was promised" else tuple(row[:3]): row for row in table}
                for title, _, table in report.Results([file]).tables()}

    def test_ratios_are_of_one_round(self):
        case = rows.Case("square", "bf16", "plait", 512)
        # Everything took twice as long in round 2.
        results = self.results(gemm_square_1=square([10, 11, 99], [22]),
                                  gemm_square_2=square([20], [40]),
                                  gemm_square_3=square([10], [15]))
        self.assertEqual([round(one, 3) for one in results.ratios(case, [case._replace(who="onednn")])],
                         [2.0, 2.0, 1.5])
        self.assertAlmostEqual(results.gigaflops(case), 2 * 512 * 100 * 50 / 11e-6 * 1e-9)

    def test_layers_have_a_table_of_their_own(self):
        layer = run({"bloom_7b.up/bf16/plait/16/real_time": [10], "bloom_7b.up/bf16/onednn/16/real_time": [15]})
        shown = self.shown(self.results(gemm_square_1=square([10], [20]), **{"gemm_bloom_7b.up_1": layer}))
        self.assertEqual(list(shown), ["What was promised", "bf16, square, GFLOP/s",
                                       "bf16, linear layers split over 8 ranks, GFLOP/s"])
        self.assertEqual(shown["bf16, square, GFLOP/s"]["square", "100 x 50", "512"][3:],
                         ["512.0", "256.0", "51.20", "2.000", "2.000"])
        self.assertEqual(shown["bf16, linear layers split over 8 ranks, GFLOP/s"]["bloom-7b, up", "100 x 50", "16"][3:],
                         ["16.00", "10.67", "1.500", "1.500", "1.500"])


if __name__ == "__main__":
    unittest.main()
