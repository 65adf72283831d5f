"""plait bench matmul: every supported product runs, and its figures are consistent."""

import itertools
import json
import os
import pty
import re
import tempfile
import unittest
from pathlib import Path

from command import PATIENCE, CommandTest


class MatmulTest(CommandTest):
    SIZE = ("--n", 200, "--k", 70, "--repeat", 2, "--threads", 1)

    def bench(self, *words):
        result = self.plait("bench", "matmul", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def json(self, *words):
        return json.loads(self.bench(*words, "--json", "-"))

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

    def test_a_file_that_cannot_be_written_is_refused_before(self):
        # The measurement would take too long for the test.
        result = self.plait("bench", "matmul", "-m", 8, "--n", 64, "--k", 64, "--seconds", 3600,
                            "--json", "/nowhere/file")
        self.assert_says(result, 1, "plait bench: cannot write /nowhere/file: No such file or directory")

    def test_a_run_that_fails_leaves_its_file_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file.json"
            file.write_text("of before")
            result = self.plait("bench", "matmul", "-m", 8, *self.SIZE, "--weight", "s5", "--json", file)
            self.assertEqual(result.returncode, 2)
            self.assertEqual((file.read_text(), os.listdir(folder)), ("of before", ["file.json"]))

    def test_every_way_of_asking(self):
        ways = itertools.product(["f32", "bf16", "f16"], ["f32,bf16,f16", "plain"], ["out_in", "in_out"])
        # In turns: each of them meets every value of the others.
        more_options = itertools.cycle([[], ["--columns", 96], ["--accumulate", "--transposed-x"]])
        for (dtype, weight, layout), more in zip(ways, more_options):
            with self.subTest((dtype, weight, layout, more)):
                found = self.json("-m", "3", *self.SIZE, "--dtype", dtype, "--weight", weight,
                                  "--layout", layout, *more)
                self.assertEqual([one["weight"] for one in found["results"]], weight.split(","))
                self.assertEqual(found["columns"], 96 if "--columns" in more else None)
                self.assertEqual(found["accumulate"], "--accumulate" in more)

    def test_quantised_weights(self):
        # There are four panels of 64 columns, and k advances in steps of 32 in every group.
        schemes = {"s8": 256 * 96 + 4 * 256, "s8:tensor": 256 * 96 + 4 * 256,
                   "s8:group=32:offsets": 256 * 96 + 3 * 256 * 5,
                   "s8:group=7": 256 * 320 + 10 * 256 * 4,
                   "s4:group=64": 256 * 96 // 2 + 2 * 256 * 4}
        found = self.json("-m", 3, *self.SIZE, "--weight", ",".join(schemes), "--backend", "all")
        self.assertEqual({one["weight"]: one["weight_bytes"] for one in found["results"]}, schemes)
        for one in found["results"]:
            self.assertIn(" w=s", one["product"])
        refused = self.plait("bench", "matmul", "-m", 3, *self.SIZE, "--weight", "s5")
        self.assertEqual(refused.returncode, 2)
        self.assertTrue(refused.stderr.startswith("plait bench: matmul: w=s5 is no weight"))
        refused = self.plait("bench", "matmul", "-m", 3, *self.SIZE, "--weight", "bf16 m=1")
        self.assertEqual(refused.stderr, "plait bench: --weight bf16 m=1 is not a kind of weight: "
                                         "it contains a space\n")

    def test_all_backends_are_those_that_can(self):
        walk = json.loads(self.plait("info", "--json", "--why", "m=4 n=200 k=70 x=f32 w=f32").stdout)
        can = [step["name"] for step in walk["walk"] if step["can"]]
        found = self.json("-m", 4, *self.SIZE, "--dtype", "f32", "--backend", "all")
        self.assertEqual([one["backend"] for one in found["results"]], can[:-1])
        both = self.json("-m", 4, *self.SIZE, "--backend", "all")["results"]
        self.assertEqual(len({one["backend"] for one in both}), len(both))
        best = self.json("-m", 4, *self.SIZE, "--dtype", "f32")["results"]
        self.assertEqual([one["backend"] for one in best], can[:1])
        slow = self.json("-m", 4, *self.SIZE, "--backend", "reference,vector", "-d", "f32")
        self.assertEqual([one["backend"] for one in slow["results"]], ["reference", "vector"])

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

    def test_whoever_waits_at_a_terminal_sees_how_far_it_is(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        words = ("bench", "matmul", "-m", 2, "-n", 64, "-k", 64, "-t", 1, "--seconds", 4)
        process = self.start(*words, stderr=theirs)
        os.close(theirs)
        out = process.communicate(timeout=PATIENCE)[0]
        seen = b""
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:  # the terminal's other end is closed
            pass
        self.assertRegex(seen.decode(), r"^\r\x1b\[Kmeasuring, repetition: \d+ of \d+, [^\r]+ left\r")
        self.assertTrue(seen.endswith(b"\r\x1b[K"), "the line is removed at the end")
        self.assertNotIn("measuring", out)

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

    def test_a_file_that_cannot_be_written(self):
        result = self.plait("bench", "matmul", "-m", 2, *self.SIZE, "--json", "/nonexistent/a.json")
        self.assert_says(result, 1, "plait bench: cannot write /nonexistent/a.json: "
                                    "No such file or directory")


if __name__ == "__main__":
    unittest.main()
