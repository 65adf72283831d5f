"""plait tune --show and --json: the plans of a cache."""

import json
import unittest
from pathlib import Path

from tune_case import HEAD, SMALL, TuneCase


class ReportTest(TuneCase):
    def test_json(self):
        self.give_profile()
        found = json.loads(self.tune(*SMALL, "--weight", "s8", "--json", "-"))
        self.assertEqual(found["cache"], str(self.cache))
        (one,) = found["problems"]
        self.assertEqual(list(one), ["problem", "plan", "ms", "serial_ms", "speedup"])
        self.assertIn(" w=s8:channel ", one["problem"])
        self.assertAlmostEqual(one["speedup"], one["serial_ms"] / one["ms"])

    def test_the_profile_says_what_is_compared_with_what(self):
        self.give_profile()
        page = self.tune("--show")
        for line in ("2 ranks of 1 thread, all at work. Each of them multiplies at these rates:",
                     "weight  rows of X  GFLOP/s",
                     "A message over shm takes 500 ns.",
                     "A rank copies 5.0 GB/s to another. While it sums, it reads and writes 10.0 GB/s.",
                     "The model's error is up to 3 % of the time of copies, sums and waits."):
            self.assertIn(f"\n{line}\n", page)
        profile = Path(f"{self.cache}.profile")
        disturbed = profile.read_text().replace("uncertainty 0.03\n", "uncertainty 0.1\nkept 1024 1.5\n")
        profile.write_text(disturbed)
        page = self.tune("--show")
        self.assertIn("\n                 1 KiB       1.50 times as long\n", page)
        self.assertIn("\nOther programs disturbed the measurement: repeat it when the machine is quiet ", page)

    def test_nothing_yet(self):
        self.assertEqual(self.tune("--show"), f"There are no plans in {self.cache} yet.\n")

    def test_a_cache_without_plans_is_none(self):
        machine = self.give_profile()
        self.cache.write_text(f"{HEAD}machine {machine}\n")
        self.assertTrue(self.tune("--show").startswith(f"There are no plans in {self.cache} yet.\n"))
        self.assertEqual(json.loads(self.tune("--show", "--json", "-"))["problems"], [])
        self.tune(*SMALL, "--transport", "threads", "--missing")
        self.assertEqual(len(self.entries()), 1)


if __name__ == "__main__":
    unittest.main()
