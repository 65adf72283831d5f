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

    def test_ranks_that_share_cores_measure_turns(self):
        cores = json.loads(self.plait("info", "--json").stdout)["processor"]["cores"]
        text = self.bench("layer", "row", "--m", 20, "--n", 64, "--k", 96, "--repeat", 2, "--threads", cores)
        self.assertRegex(text, rf"\n2 ranks of {cores} threads? share {cores} cores?: the ranks are oversubscribed")
        self.assertIn("plait predict", text)


if __name__ == "__main__":
    unittest.main()
