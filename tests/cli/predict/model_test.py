"""plait predict MODEL: the training step of a model in every plan."""

import re
import unittest
from pathlib import Path

from predict_case import PredictCase


class ModelTest(PredictCase):
    def test_a_training_step(self):
        words = ("--tp", 4, "--tokens", 2048, "--sequence", 1024, "--parts", 2)
        text = self.predict("llama2-7b", *words)
        self.assertTrue(text.startswith("Predicted, not measured"))
        for part in ("4 ranks; device h100", "qkv (column)", "down (row)", "each layer's best", "attention at 50 %"):
            self.assertIn(part, text)
        self.assertIn("+7.85 %", self.predict("llama2-70b", "--tokens", 1024, "--schedule", "fused"))
        found = self.json("llama2-7b", *words)
        whole = self.json("llama2-7b", *words, "--whole-rows")
        self.assertGreater(whole["rest_ms"], 1.01 * found["rest_ms"])
        short = self.json("llama2-7b", "--tp", 4, "--tokens", 1024, "--schedule", "fused")
        self.assertEqual(short["sequence"], 1024)
        self.assertEqual([one["plan"] for one in found["plans"]], ["serial", "pipelined parts=2", "fused"])
        for one in found["plans"]:
            layers = sum(layer["forward_ms"] + layer["backward_ms"] for layer in one["layers"])
            self.assertAlmostEqual(one["step_ms"], 32 * layers + found["rest_ms"])
            self.assertAlmostEqual(one["gain"], found["plans"][0]["step_ms"] / one["step_ms"] - 1)
            self.assertLessEqual(one["gain"], found["best_gain"])
        small = self.json("llama2-7b", *words, "--scale", 0.25)
        self.assertEqual((small["scale"], [(one["in"], one["out"]) for one in small["plans"][0]["layers"]]),
                         (0.25, [(1024, 3072), (1024, 1024), (1024, 5632), (2816, 1024)]))
        self.assertLess(small["rest_ms"], found["rest_ms"] / 2)
        for option in ("--whole-rows", "--keep-gathered", "--column-backward"):
            self.assertNotEqual(self.json("llama2-7b", *words, option)["plans"], found["plans"], option)

    def test_a_training_step_in_json_has_its_assumptions(self):
        words = ("--tokens", 512, "--schedule", "serial", "--device", "a100", "--link", "25gbit,5us",
                 "--wiring", "pairs")
        found = self.json("bloom-7b", *words)
        of_operator = self.json("matmul-all-reduce", *self.SIZE, *words[2:])["assumptions"]
        self.assertIn("attention at 50 %", found["assumptions"].pop("rest"))
        self.assertEqual(found["assumptions"], of_operator)
        self.assertEqual((of_operator["link_bytes_per_second"], of_operator["wiring"]), (25e9 / 8, "pairs"))
        self.assertEqual(found["published_gain"], 0.032)
        self.assertEqual([found[key] for key in ("wire", "column_backward", "recompute_all_gather")],
                         ["bf16", False, True])
        found = self.json("bloom-7b", *words, "--tp", 4, "--wire", "f32", "--keep-gathered", "--column-backward")
        self.assertEqual([found[key] for key in ("wire", "column_backward", "recompute_all_gather")],
                         ["f32", True, False])
        self.assertIsNone(found["published_gain"])  # published for another number of ranks

    def test_one_rank_gains_nothing(self):
        found = self.json("llama2-7b", "--tp", 1, "--tokens", 1024)
        self.assertEqual({one["gain"] for one in found["plans"]}, {0})

    def test_the_page_has_the_gains_that_are_predicted(self):
        page = (Path(__file__).parents[3] / "docs/lab/prediction.md").read_text()
        rows = re.findall(r"^\| ([a-z]+2?-\d+b) \| .* % \| (.+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
        self.assertEqual(len(rows), 3)
        for model, parts, fused, best in rows:
            found = self.json(model, "--device", "ascend-910b", "--plan", "pipelined parts=2;fused")
            gains = [*(one["gain"] for one in found["plans"][1:]), found["best_gain"]]
            self.assertEqual([parts, fused, best], [f"{100 * gain:+.1f} %" for gain in gains], model)


if __name__ == "__main__":
    unittest.main()
