"""plait bench matmul: its figures are consistent, as text and as JSON."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from matmul_case import MatmulCase


class MatmulReportTest(MatmulCase):
    def test_json_has_every_key(self):
        words = ["-m", "1,8", *map(str, self.SIZE)]
        found = self.json(*words)
        self.assertEqual(list(found), ["plait", "words", "processor", "threads", "n", "k", "layout",
                                       "columns", "accumulate", "transposed_x", "peaks", "reads",
                                       "results"])
        self.assertEqual(found["words"], [*words, "--json", "-"])
        self.assertEqual((found["n"], found["k"], found["threads"]), (200, 70, 1))
        self.assertEqual((found["layout"], found["columns"]), ("out_in", None))
        self.assertEqual([one["m"] for one in found["results"]], [1, 8])
        for one in found["results"]:
            self.assertEqual(one["product"], f"m={one['m']} n=200 k=70 x=bf16 w=bf16 out=bf16")
            self.assertEqual((one["repetitions"], one["weight_bytes"]), (2, 256 * 96 * 2))
            self.assertLessEqual(one["min_ns"], one["median_ns"])
            self.assertLessEqual(one["median_ns"], one["max_ns"])
            self.assertAlmostEqual(one["flops_per_second"] * one["median_ns"] * 1e-9,
                                   2 * one["m"] * 200 * 70, delta=1)
            self.assertAlmostEqual(one["of_peak"] * found["peaks"]["bf16"]["flops_per_second"],
                                   one["flops_per_second"], delta=1)

    def test_people_get_a_table(self):
        page = self.bench("-m", "1,64", *self.SIZE, "--dtype", "f32", "--columns", 64)
        head, _, table = page.partition("\n\n")
        self.assertTrue(head.startswith("y = x·w  n=200 k=70 x=f32 out=f32; out_in weight, windows "
                                        "of 64 columns\n"))
        self.assertRegex(head, r", 1 thread\nPeak of f32: [\d.]+ GFLOP/s \(.+\)$")
        lines = table.splitlines()
        self.assertEqual(lines[0].split(),
                         "m weight backend median min max GFLOP/s % of peak".split())
        self.assertEqual([line.split()[0] for line in lines[1:]], ["1", "64"])
        self.assertNotIn("\x1b", page)

    def test_few_rows_of_a_large_weight_are_compared_with_reading_it(self):
        product = ["-n", 1024, "-k", 1024, "--repeat", 2, "-t", 1]
        found = self.json("-m", "16,17", *product)
        self.assertEqual([one["bytes"] for one in found["reads"]], [1024 * 1024 * 2])
        lines = self.bench("-m", "16,17", *product).splitlines()
        self.assertTrue(lines[-3].endswith("  weight GB/s  % of reading"))
        self.assertEqual(len(lines[-2].split()), len(lines[-1].split()) + 2)
        self.assertRegex(lines[3], r"^Reading 2(\.0)? MiB: [\d.]+ GB/s$")

    def test_json_beside_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "figures.json"
            page = self.bench("-m", 2, *self.SIZE, "--json", file)
            figures = json.loads(file.read_text())
        median = figures["results"][0]["median_ns"]
        self.assertEqual(len(figures["results"]), 1)
        shown = re.search(r"bf16 +\w+ +([\d.]+) (ns|us|ms)", page)
        unit = {"ns": 1, "us": 1e3, "ms": 1e6}[shown[2]]
        self.assertAlmostEqual(float(shown[1]) * unit / median, 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
