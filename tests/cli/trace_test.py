"""plait trace: pictures of one operator, and refusals."""

import os
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from operator_case import OperatorCase


class TraceTest(OperatorCase):
    def test_a_picture_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "picture.svg"
            words = ("trace", "matmul-reduce-scatter", *self.SIZE, "--schedule", "fused")
            result = self.plait(*words, "--svg", picture, cwd=folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.endswith(f"\nPicture: {picture}\n"))
            self.assertEqual(os.listdir(folder), ["picture.svg"])
            texts = [text.text for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
            self.assertEqual(texts[0], "matmul_reduce_scatter, m=40 n=200 k=96, bf16 by bf16")
            self.assertTrue(any(text.startswith("fused: ") for text in texts), texts)

            result = self.plait(*words, "--svg", "nowhere/picture.svg", cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("cannot write nowhere/picture.svg: No such file or directory\n", result.stderr)

    def test_trace_refuses(self):
        for words, sentence in [
            ([], "an operator is missing, such as matmul-all-reduce (plait trace --help)"),
            (["matmul"], "cannot trace matmul; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduse"],
             "cannot trace matmul-all-reduse; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduce", "--m", "8,9", "--n", "8", "--k", "8"], "a timeline needs exactly one size, not 2"),
            (["matmul-all-reduce", *self.SIZE, "--html", "file", "--svg", "file"],
             "--html and --svg both name file"),
        ]:
            result = self.plait("trace", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait trace: {sentence}\n"))


if __name__ == "__main__":
    unittest.main()
