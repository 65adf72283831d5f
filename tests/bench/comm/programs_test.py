"""Runs the comm benchmarks, and checks what they print, write and return."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BENCHES = Path(os.environ["PLAIT_BENCHES"])
SECTIONS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]


def run(name, *words):
    return subprocess.run(
        [BENCHES / name, *map(str, words)], capture_output=True, text=True, timeout=600
    )


class BenchTest(unittest.TestCase):
    def measure(self, *words):
        result = run("plait_bench_comm", "--quick", "--repetitions", 3, "--json", "-", *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_everything_is_measured_and_written(self):
        report = self.measure("--sizes", "64,4KiB")
        found = {(race["what"], race["bytes"]) for race in report["races"]}
        wanted = {f"mailbox, {way}" for way in ("round trip", "one way", "both ways at once")}
        for what in [*wanted, *SECTIONS, "all_reduce bf16"]:
            self.assertLessEqual({(what, 64), (what, 4096)}, found)
        self.assertIn(("barrier", 0), found)
        for race in report["races"]:
            for times in race["contenders"].values():
                self.assertGreater(times["min_ns"], 0)
                self.assertLessEqual(times["min_ns"], times["median_ns"])
                self.assertLessEqual(times["median_ns"], times["max_ns"])
        self.assertEqual(
            [(trial["waiting"], trial["bytes"]) for trial in report["links"]],
            [(way, size) for way in ("waiting", "working meanwhile") for size in (64, 4096)],
        )

    def test_threads_and_more_ranks(self):
        report = self.measure("-t", "threads", "-n", 3, "--only", "barrier,link", "--sizes", 1000)
        self.assertEqual(len(report["races"]), 1)
        self.assertEqual(len(report["links"]), 2)

    def test_an_emulated_chunk_is_never_early(self):
        report = self.measure("--only", "link", "--sizes", "64KiB", "--link", "1gbit,1ms")
        for trial in report["links"]:
            self.assertAlmostEqual(trial["ideal_ns"], 1e6 + 65536 * 8, delta=1)
            self.assertGreaterEqual(trial["measured"]["min_ns"], trial["ideal_ns"])

    def test_json_goes_to_a_file_and_tables_to_stdout(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "comm.json"
            result = run(
                "plait_bench_comm", "--quick", "--only", "barrier", "--markdown", "--json", file
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("## barrier", result.stdout)
            self.assertEqual(json.loads(file.read_text())["races"][0]["what"], "barrier")

    def test_help_fits_and_wrong_words_are_refused(self):
        page = run("plait_bench_comm", "--help")
        self.assertEqual(page.returncode, 0)
        self.assertLessEqual(max(map(len, page.stdout.splitlines())), 100)
        for words in (["--nonsense"], ["--only", "nothing"], ["-n", "1"], ["--link", "fast"]):
            result = run("plait_bench_comm", *words)
            self.assertEqual(result.returncode, 2, words)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
