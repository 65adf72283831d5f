"""plait tune --profile: the machine is measured, roughly, since no test asks for a precise figure."""

import json
import os
import re
import tempfile
import unittest
from pathlib import Path

from command import CommandTest


class ProfileTest(CommandTest):
    def test_the_machine_is_measured_and_then_known(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "plans"
            self.environment["PLAIT_PLAN_CACHE"] = str(cache)
            self.environment["PLAIT_LINK"] = "1gbit,1s"  # not a property of the machine
            alone = ["--transport", "threads", "--threads", 1, "--ranks", 2, "--seconds", 0.01]
            result = self.plait("tune", "--profile", *alone, timeout=800)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("\nbf16 ", result.stdout)
            self.assertIn("\nA message over threads takes ", result.stdout)
            profile = Path(f"{cache}.profile").read_text()
            self.assertLess(float(re.search(r"\ntransport threads (\S+) ", profile)[1]), 500_000_000)  # ns
            self.assertEqual(os.listdir(folder), ["plans.profile"])  # and no plan yet
            self.assertTrue(self.plait("tune", "--show").stdout.startswith(f"There are no plans in {cache} yet.\n"))

            why = ["info", "--json", "--why", "matmul-all-reduce m=512 n=4096 k=4096 link=1gbit,5us"]
            found = json.loads(self.plait(*why).stdout)
            self.assertEqual((found["profile"], found["source"]), ("measured", "model"))
            Path(f"{cache}.profile").unlink()
            self.assertEqual(json.loads(self.plait(*why).stdout)["profile"], "built in")


if __name__ == "__main__":
    unittest.main()
