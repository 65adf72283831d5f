"""Shared by tests of plait bench layer and plait bench model: their output, whose figures are consistent."""

import json

from command import CommandTest


KEYS = ["model", "layers", "scale", "tp", "seq", "batch", "forward_only", "dtype", "grad", "wire", "sequence_parallel",
        "keep_gathered", "column_backward", "stand_in", "stand_in_ms", "transport", "threads", "link", "comm_share",
        "amdahl_gain_percent", "schedules", "profile", "machine"]
NO_LINK = "plait bench: no link was found that makes communication a share of"
SCHEDULE_KEYS = ["name", "step_ms", "gain_percent", "exposed_comm_ms", "tokens_per_s", "peak_bytes", "bits_equal"]


class StepCase(CommandTest):
    SMALL = ("--scale", 0.01, "--seq", 50, "--repeat", 2)

    def bench(self, *words):
        result = self.plait("bench", *words)
        # Next to other tests, steps of microseconds may be too noisy to find the requested link.
        said = [line for line in result.stderr.splitlines() if NO_LINK not in line]
        self.assertEqual((result.returncode, said), (0, []), words)
        return result.stdout

    def json(self, *words):
        found = json.loads(self.bench(*words, "--json", "-"))
        self.assertEqual(list(found), KEYS)
        serial = found["schedules"][0]["step_ms"]
        products = serial * (1 - found["comm_share"])
        self.assertAlmostEqual(found["amdahl_gain_percent"], 100 * (serial / products - 1))
        for one in found["schedules"]:
            self.assertEqual(list(one), SCHEDULE_KEYS)
            self.assertTrue(one["bits_equal"], one)
            self.assertAlmostEqual(one["gain_percent"], 100 * (serial / one["step_ms"] - 1))
            self.assertAlmostEqual(one["exposed_comm_ms"], one["step_ms"] - products)
            self.assertAlmostEqual(one["tokens_per_s"] * one["step_ms"], found["seq"] * found["batch"] * 1000)
            self.assertGreater(one["peak_bytes"], 0)
        return found
