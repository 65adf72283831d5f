"""./do bench network: a short run has all of its figures."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import netlab  # noqa: E402, in another folder

BUILD = Path(os.environ["PLAIT_BUILD"])
PATIENCE = 500
WHY_NOT = netlab.refusal()


class NetworkTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "network.json")

    def run_bench(self, *words):
        return subprocess.run([ROOT / "bench/network/run.sh", "--json", self.file, *words],
                              env={**os.environ, "BUILD": str(BUILD)}, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_a_short_run(self):
        done = self.run_bench("--quick", "--rates", "5gbit,none")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {(row["what"]["what"], row["table"], row["what"]["engine"]): row["values"]["median"] for row in
                json.loads(self.file.read_text(encoding="utf-8"))["rows"]}
        for rate in ("5 Gbit/s", "No limit"):
            for what in ("both ways at once, chunks of 256 KiB", "both ways at once, chunks of 1 MiB",
                         "round trip of 64 B", "set-up"):
                self.assertGreater(min(rows[what, rate, "tcp"]), 0, what)
        # A link gives no more than its rate; what its queue lets through at once is little of it.
        self.assertLess(max(rows["both ways at once, chunks of 1 MiB", "5 Gbit/s", "tcp"]), 1.1)
        for what in ("all-reduce, f32", "all-reduce, f32, wire and out bf16"):
            self.assertGreater(rows[f"{what}, fused over serial", "5 Gbit/s", "tcp"][0], 0)
            # It can't be faster than the longer one of product and collective.
            self.assertTrue(0.9 < rows[f"{what}, fused over serial, predicted", "5 Gbit/s", "tcp"][0] < 2, what)
        self.assertGreater(rows["copies and sums", "No limit", "shm"][0], 0)
        for what in ("kill -9, streaming", "kill -9, idle", "interface down, idle"):
            self.assertGreater(rows[what, "No limit", "tcp"][0], 0)

    def test_wrong_words(self):
        for words in (["--rates", "5mbit"], ["--rates", "gbit"], ["--only", "nothing"]):
            self.assertEqual(self.run_bench(*words).returncode, 2)


if __name__ == "__main__":
    unittest.main()
