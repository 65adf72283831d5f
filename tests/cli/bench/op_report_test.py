"""plait bench OPERATOR: its text, and the files of its figures."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from command import PLAIT, wait_until
from operator_case import OperatorCase


class OpReportTest(OperatorCase):
    def test_text_says_it(self):
        text = self.bench("matmul-all-reduce", *self.IN_THREADS, "--link", "1gbit")
        self.assertIn("emulated link", text)
        self.assertRegex(text, r"\nplan +median +min +max +speed-up +efficiency +bits\n")
        self.assertEqual(text.count("equal"), 5)

    def test_the_wire_is_that_of_what_travels(self):
        for op, wire in (("matmul-all-reduce", "f32"), ("all-gather-matmul", "bf16")):
            self.assertIn(f" wire={wire}\n", self.bench(op, *self.IN_THREADS, "--schedule", "serial"))
        coded = self.bench("matmul-reduce-scatter", *self.IN_THREADS, "--wire", "s8", "--schedule", "all")
        self.assertIn(" wire=s8\n", coded)

    def test_what_was_measured_outlives_an_interruption(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            # The second size takes many seconds.
            words = ["matmul-all-reduce", "--m", "1,4096", "--n", "64", "--k", "64", "--repeat", "1", "--schedule",
                     "serial", "--transport", "threads", "--link", "1mbit", "--json", str(figures)]
            bench = subprocess.Popen([PLAIT, "bench", *words], env=self.environment, stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda: figures.exists() or bench.poll() is not None, "the first size is written")
                self.assertIsNone(bench.poll())
            finally:
                bench.kill()
                bench.wait()
            self.assertEqual([one["m"] for one in json.loads(figures.read_text())], [1])

    def test_files_that_cannot_be_written_are_refused_before(self):
        for option in ("--json", "--html", "--svg", "--trace"):
            for words in (["--transport", "threads"], []):
                # The measurement would take too long for the test.
                result = self.plait("bench", "matmul-all-reduce", "--m", 512, "--n", 512, "--k", 512, *words,
                                    "--seconds", 3600, option, "/nowhere/file")
                self.assert_says(result, 1, "plait bench: cannot write /nowhere/file: No such file or directory")

    def test_all_ranks_fail_where_the_figures_cannot_be_written(self):
        for figures in ([], ["--json", "-"]):
            self.assert_all_ranks_fail_where_rank_0_cannot_write("bench", "matmul-all-reduce", *self.SIZE, "--schedule",
                                                                 "serial", *figures)


if __name__ == "__main__":
    unittest.main()
