"""plait bench matmul: every product that its options describe runs."""

import itertools
import json
import unittest

from matmul_case import MatmulCase


class MatmulOptionsTest(MatmulCase):
    def test_every_way_of_asking(self):
        ways = itertools.product(["f32", "bf16", "f16"], ["f32,bf16,f16", "plain"], ["out_in", "in_out"])
        # In turns: each of them meets every value of the others.
        more_options = itertools.cycle([[], ["--columns", 96], ["--accumulate", "--transposed-x"]])
        for (dtype, weight, layout), more in zip(ways, more_options):
            with self.subTest((dtype, weight, layout, more)):
                found = self.json("-m", "3", *self.SIZE, "--dtype", dtype, "--weight", weight,
                                  "--layout", layout, *more)
                self.assertEqual([one["weight"] for one in found["results"]], weight.split(","))
                self.assertEqual(found["columns"], 96 if "--columns" in more else None)
                self.assertEqual(found["accumulate"], "--accumulate" in more)

    def test_quantised_weights(self):
        # There are four panels of 64 columns, and k advances in steps of 32 in every group.
        schemes = {"s8": 256 * 96 + 4 * 256, "s8:tensor": 256 * 96 + 4 * 256,
                   "s8:group=32:offsets": 256 * 96 + 3 * 256 * 5,
                   "s8:group=7": 256 * 320 + 10 * 256 * 4,
                   "s4:group=64": 256 * 96 // 2 + 2 * 256 * 4}
        found = self.json("-m", 3, *self.SIZE, "--weight", ",".join(schemes), "--backend", "all")
        self.assertEqual({one["weight"]: one["weight_bytes"] for one in found["results"]}, schemes)
        for one in found["results"]:
            self.assertIn(" w=s", one["product"])
        refused = self.plait("bench", "matmul", "-m", 3, *self.SIZE, "--weight", "s5")
        self.assertEqual(refused.returncode, 2)
        self.assertTrue(refused.stderr.startswith("plait bench: matmul: w=s5 is no weight"))
        refused = self.plait("bench", "matmul", "-m", 3, *self.SIZE, "--weight", "bf16 m=1")
        self.assertEqual(refused.stderr, "plait bench: --weight bf16 m=1 is not a kind of weight: "
                                         "it contains a space\n")

    def test_all_backends_are_those_that_can(self):
        walk = json.loads(self.plait("info", "--json", "--why", "m=4 n=200 k=70 x=f32 w=f32").stdout)
        can = [step["name"] for step in walk["walk"] if step["can"]]
        found = self.json("-m", 4, *self.SIZE, "--dtype", "f32", "--backend", "all")
        self.assertEqual([one["backend"] for one in found["results"]], can[:-1])
        both = self.json("-m", 4, *self.SIZE, "--backend", "all")["results"]
        self.assertEqual(len({one["backend"] for one in both}), len(both))
        best = self.json("-m", 4, *self.SIZE, "--dtype", "f32")["results"]
        self.assertEqual([one["backend"] for one in best], can[:1])
        slow = self.json("-m", 4, *self.SIZE, "--backend", "reference,vector", "-d", "f32")
        self.assertEqual([one["backend"] for one in slow["results"]], ["reference", "vector"])


if __name__ == "__main__":
    unittest.main()
