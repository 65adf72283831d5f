"""The sizes and operands of a problem, as plait bench OPERATOR takes them."""

import tempfile
import unittest
from pathlib import Path

from operator_case import OperatorCase


class ProblemOptionsTest(OperatorCase):
    def test_several_sizes_are_a_list(self):
        found = self.json("matmul-reduce-scatter", "--m", "8,16", "--n", 64, "--k", "32,64", "--repeat", 1,
                          "--schedule", "fused", "--transport", "threads")
        self.assertEqual([(one["m"], one["n"], one["k"]) for one in found], [(8, 64, 32), (16, 64, 64)])
        with tempfile.TemporaryDirectory() as folder:
            shapes = Path(folder) / "shapes.txt"
            shapes.write_text("# m n k\n8 64 32\n\n16 64 64  # twice\n")
            again = self.json("matmul-reduce-scatter", "--shapes", shapes, "--repeat", 1, "--schedule", "serial")
        self.assertEqual([(one["m"], one["n"], one["k"]) for one in again], [(8, 64, 32), (16, 64, 64)])

    def test_a_weight_that_lies_in_out(self):
        for weight in ("bf16", "plain"):
            found = self.json("matmul-all-reduce", *self.SIZE, "--layout", "in_out", "--weight", weight)
            self.check(found, "matmul-all-reduce")


if __name__ == "__main__":
    unittest.main()
