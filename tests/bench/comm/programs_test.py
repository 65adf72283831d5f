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
        names = ("operation", "the receiver is")
        found = {
            (next(row["what"][name] for name in names if name in row["what"]), row["what"]["size"])
            for row in report["rows"]
        }
        wanted = {f"mailbox, {way}" for way in ("round trip", "one way", "both ways at once")}
        links = {"waiting", "working meanwhile"}
        for what in [*wanted, *links, *SECTIONS, "all_reduce bf16"]:
            self.assertLessEqual({(what, "64 B"), (what, "4 KiB")}, found)
        self.assertIn(("barrier", "0 B"), found)
        for row in report["rows"]:
            self.assertGreater(min(row["values"].get(name, 1) for name in ("plait", "ideal, us")), 0)
        barred = [row["what"] for row in report["rows"] if "bar" in row]
        self.assertEqual(barred, [{"operation": "mailbox, round trip", "size": "64 B"}])
        self.assertLessEqual({"date", "processor", "load", "command"}, report["conditions"].keys())

    def test_json_goes_to_a_file_and_tables_to_stdout(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "comm.json"
            result = run("plait_bench_comm", "--quick", "--only", "barrier", "--json", file)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("\nbarrier\n", result.stdout)
            self.assertEqual(json.loads(file.read_text())["rows"][0]["what"]["operation"], "barrier")

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
