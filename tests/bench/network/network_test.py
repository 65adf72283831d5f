"""./do bench network: a short run has all of its figures, and the report judges them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench/network")]
import netlab  # noqa: E402, in another folder
import report  # noqa: E402, likewise

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
        rows = {(row["what"], row["rate"], row["engine"]): row["values"] for row in
                json.loads(self.file.read_text(encoding="utf-8"))["rows"]}
        for rate in ("5gbit", "none"):
            for what in ("both ways at once, chunks of 256 KiB", "both ways at once, chunks of 1 MiB",
                         "round trip of 64 B", "set-up"):
                self.assertGreater(min(rows[what, rate, "tcp"]), 0, what)
        # A link gives no more than its rate; what its queue lets through at once is little of it.
        self.assertLess(max(rows["both ways at once, chunks of 1 MiB", "5gbit", "tcp"]), 1.1)
        self.assertGreater(rows["all-reduce, f32, fused over serial", "5gbit", "tcp"][0], 0)
        for what in ("kill -9, streaming", "kill -9, idle", "interface down, idle"):
            self.assertGreater(rows[what, "none", "tcp"][0], 0)

    def test_wrong_words(self):
        for words in (["--rates", "5mbit"], ["--rates", "gbit"], ["--only", "nothing"]):
            self.assertEqual(self.run_bench(*words).returncode, 2)

    def test_the_report_judges_medians(self):
        rows = [{"what": "share", "rate": "2gbit", "engine": "tcp", "unit": "share", "at least": 0.95,
                 "values": [0.5, 0.96, 0.97]},
                {"what": "trip", "rate": "2gbit", "engine": "tcp", "unit": "s", "at most": 30e-6,
                 "values": [31e-6, 32e-6, 2e-6]},
                {"what": "free", "rate": "none", "engine": "mpi", "unit": "Gbit/s", "values": [20.0]}]
        self.file.write_text(json.dumps({"conditions": {"date": "today"}, "rows": rows}), encoding="utf-8")
        found = report.Results([self.file]).tables()
        self.assertEqual([title for title, _, _ in found], ["2 Gbit/s", "No limit"])
        self.assertEqual(found[0][2][0], ["share", "tcp", "0.96", "0.50 to 0.97", ">= 0.95", "ok"])
        self.assertEqual(found[0][2][1], ["trip", "tcp", "31.0 us", "2.0 us to 32.0 us", "<= 30.0 us", "MISSED"])
        self.assertEqual(found[1][2], [["free", "mpi", "20.00 Gbit/s", "", "", ""]])


if __name__ == "__main__":
    unittest.main()
