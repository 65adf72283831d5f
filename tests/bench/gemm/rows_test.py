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

    def test_torch_is_compared_within_its_round(self):
        torch = run({"square/bf16/torch/512": [8]}, {"torch": "2.13"})
        results = self.results(gemm_square_1=square([10], [20]), gemm_torch_square_1=torch)
        case = rows.Case("square", "bf16", "plait", 512)
        others = [case._replace(who=who) for who in rows.RIVALS]
        self.assertEqual([round(one, 3) for one in results.ratios(case, others)], [0.8])
        self.assertEqual(results.conditions()["beside"], "oneDNN 2.6 and torch 2.13")

    def test_the_part_of_the_peak_is_in_processor_time(self):
        results = self.results(gemm_square_1=square([100], [100]))
        # 5e9 a second of wall-clock time is twice that of processor time, in which half was spent.
        (part,) = results.of_peak(rows.Case("square", "bf16", "plait", 512))
        self.assertAlmostEqual(part, 2 * 512 * 100 * 50 / 100e-6 / 10e9)

    def test_promises_say_what_is_met(self):
        text = "bf16, square, M 64 to 2048: plait / faster of oneDNN packed and torch, "
        for rival, lowest, mean in ((9, "**no**", "**no**"), (10, "yes", "yes"), (9.8, "yes", "**no**")):
            shown = self.shown(self.results(gemm_square_1=square([10], [rival])))["What was promised"]
            self.assertEqual(shown[text + "lowest of 1"][2:], [">= 0.97", lowest])
            self.assertEqual(shown[text + "geometric mean of 1"][2:], [">= 1", mean])
        self.assertEqual(shown["bf16, square, M 512 to 2048: plait, of the peak, lowest of 1"][1:],
                         ["51.20", ">= 0.92", "yes"])

    def test_two_threads_are_beside_one_in_wall_clock_time(self):
        # 5e9 per second of wall-clock time is twice as much per second of processor time, half of which was used.
        threads = run({"square/bf16/one_thread/512": [10], "square/bf16/two_threads/512": [6],
                       "square/f32/one_thread/512": [10], "square/f32/two_threads/512": [5]},
                      {**PROCESSOR, "threads": "2"})
        for one in threads["benchmarks"]:
            if "two_threads" in one["name"] and "cpu_time" in one:
                one["cpu_time"] = one["real_time"] * 2
        results = self.results(gemm_square_1=square([10], [20]), gemm_two_threads_1=threads)
        ratios = self.shown(results)["Square, ratios of speeds"]
        text = "two threads beside one"
        self.assertEqual(ratios[text, "bf16", "512"][3:], ["1.667", ">= 1.9", "**no**"])
        self.assertEqual(ratios[text, "f32", "512"][3:], ["2.000", "", ""])
        self.assertEqual(results.conditions()["threads"], "1")

    def test_few_rows_are_beside_reading_the_weight(self):
        few = {f"square/bf16/{who}/{m}/real_time": [us]
               for who, m, us in (("plait", 16, 20), ("onednn", 16, 19), ("plait", 4, 10), ("onednn", 4, 12),
                                  ("plait", 1, 10), ("onednn", 1, 9.5), ("memory", 1, 8))}
        shown = self.shown(self.results(gemm_square_1=run(few)))["What was promised"]
        for m, ratio, met in ((16, "0.950", "yes"), (4, "0.800", "**no**"), (1, "0.800", "**no**")):
            self.assertEqual(shown[f"bf16, square, M = {m}: {rows.FEW}, lowest of 1"][1:], [ratio, ">= 0.9", met])

    def test_f16_is_beside_bf16(self):
        half = run({"square/f16/plait/512/real_time": [11], "square/f16/plait/16/real_time": [99]})
        results = self.results(gemm_square_1=square([10], [20]), gemm_square_f16_1=half)
        ratios = self.shown(results)["Square, ratios of speeds"]
        self.assertEqual(ratios["f16 beside bf16", "f16", "512"][3:], ["0.909", ">= 0.97", "**no**"])
        self.assertNotIn(("f16 beside bf16", "f16", "16"), ratios)

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
