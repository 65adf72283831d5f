"""plait bench layer and plait bench model: every plan runs, and its figures are consistent."""

import json
import re
import unittest

from step_case import StepCase


class StepTest(StepCase):
    def test_every_model(self):
        for model in "llama2-70b", "llama2-7b", "bloom-7b", "bloom-176b":
            with self.subTest(model):
                found = self.json("model", model, *self.SMALL, "--transport", "threads", "--tp", 3)
                self.assertEqual((found["model"], found["tp"], found["seq"], found["link"]), (model, 3, 50, None))
                self.assertEqual([one["name"] for one in found["schedules"]],
                                 ["serial", "pipelined parts=4", "pipelined parts=8", "fused"])

    def test_a_link_by_its_share(self):
        def rate(share):
            found = self.json("model", "bloom-7b", *self.SMALL, "--link", f"share={share}", "--plan", "fused")
            number, unit = re.fullmatch(r"([\d.]+)(g|m|)bit,5us", found["link"]).groups()
            return float(number) * {"g": 1e9, "m": 1e6, "": 1}[unit]

        # One takes 891 times as long relative to the products as the other: more than any noise.
        self.assertGreater(rate(0.1), rate(0.99))

    def test_layers(self):
        for kind in "column", "row":
            with self.subTest(kind):
                found = self.json("layer", kind, "--m", 33, "--n", 200, "--k", 96, "--repeat", 2)
                self.assertEqual((found["model"], found["layers"], found["scale"]), (f"{kind} 96x200", 1, 1))
        text = self.bench("layer", "row", "--m", 20, "--n", 64, "--k", 96, "--repeat", 2, "--plan", "fused")
        self.assertIn("row layer, 96 inputs, 64 outputs, 20 tokens, bf16", text)
        self.assertNotIn("DIFFER", text)

    def test_a_profile_of_steps_that_decode(self):
        words = ("model", "llama2-7b", "--scale", 0.05, "--blocks", 2, "--decode", 3, "--repeat", 2, "--plan", "serial",
                 "--link", "10gbit,500us", "--stand-in", 0.1)
        found = self.json(*words)
        self.assertEqual([found[key] for key in ("seq", "batch", "forward_only", "sequence_parallel")],
                         [1, 3, True, False])
        profile = found["profile"]
        self.assertEqual((profile["plan"], [one["rank"] for one in profile["ranks"]]), ("serial", [0, 1]))
        for rank in profile["ranks"]:
            layers = rank["layers"]
            self.assertEqual([(one["name"], one["calls"]) for one in layers],
                             [("qkv", 2), ("proj", 2), ("up", 2), ("down", 2)])
            # Half of each weight, in bf16: hidden 256, and 512 inside.
            self.assertEqual([one["weight_bytes"] / 2 for one in layers],
                             [3 * 256 * 256, 256 * 256, 2 * 256 * 512, 256 * 512])
            for one in layers:
                self.assertGreater(one["multiplying_ms"], 0, one)
                self.assertAlmostEqual(one["of_reading"] * profile["reading_bytes_per_s"],
                                       one["weight_bytes"] / (one["multiplying_ms"] * 1e-3), delta=1e3)
                parts = sum(one[f"{part}_ms"] for part in ("multiplying", "communicating", "waiting", "rest"))
                self.assertAlmostEqual(parts, one["ms"], msg=f"{one}")
            # Only the sums of row layers go over the link.
            self.assertEqual([one["waiting_ms"] for one in layers[::2]], [0, 0])
            for part in "calls", "ms", "multiplying_ms", "waiting_ms", "weight_bytes":
                self.assertAlmostEqual(rank["all"][part], sum(one[part] for one in layers))
        # Four sums wait 500 us each. A rank that is late waits less, and the other one as much more.
        self.assertGreater(sum(rank["all"]["waiting_ms"] for rank in profile["ranks"]) / 2, 0.8 * 4 * 0.5)
        text = self.bench(*words)
        self.assertIn(", 2 of 32 layers, widths x 0.0625, 3 tokens in 3 sequences, bf16, forward only,", text)
        self.assertRegex(text, r'\nA step of the plan "serial": .* means of 20 steps\.\n')
        self.assertRegex(text, r"\nlayer +calls +each +product +of reading +copy, sum +wait +rest\nqkv +2 ")
        self.assertRegex(text, r"\nrank +calls +step .*\n0 +8 .*\n1 +8 .*\n$")
        self.assertIsNone(self.json("model", "llama2-7b", *self.SMALL, "--plan", "serial")["profile"])

    def test_ranks_that_share_cores_measure_turns(self):
        cores = json.loads(self.plait("info", "--json").stdout)["processor"]["cores"]
        text = self.bench("layer", "row", "--m", 20, "--n", 64, "--k", 96, "--repeat", 2, "--threads", cores)
        self.assertRegex(text, rf"\n2 ranks of {cores} threads? share {cores} cores?: the ranks are oversubscribed")
        self.assertIn("plait predict", text)


if __name__ == "__main__":
    unittest.main()
