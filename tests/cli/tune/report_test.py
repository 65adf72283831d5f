"""plait tune --show and --json: the plans of a cache."""

import json
import unittest

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
