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

    def draw(self, *words):
        """The texts of a picture, and how many bars its products have."""
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "picture.svg"
            words = ("trace", *words, "--repeat", 2, "--threads", 1, "-t", "threads", "--svg", picture)
            result = self.plait(*words, cwd=folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""), words)
            self.assertTrue(result.stdout.endswith(f"\nPicture: {picture}\n"), result.stdout)
            self.assertEqual(os.listdir(folder), ["picture.svg"])
            tree = ElementTree.parse(picture)
        texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
        return texts, sum(bar.get("class") == "bar product" for bar in tree.iter("{http://www.w3.org/2000/svg}rect"))

    def test_vocabulary_heads(self):
        for head, runs in [("top", ["gathered", "top"]), ("loss", ["loss"]), ("loss-alone", ["loss-alone"]),
                           ("log-probs", ["log-probs"])]:
            texts, bars = self.draw("heads", "--m", 5, "--n", 301, "--k", 64, "--head", head)
            self.assertEqual(texts[0], f"{head}, m=5 n=301 k=64, bf16")
            self.assertEqual([text.split(":")[0] for text in texts if "; exposed " in text], runs)
            self.assertGreaterEqual(bars, 2 * len(runs), "not every rank multiplies in every run")
            self.assertTrue(texts[-1].endswith(" (products alone)"), texts[-1])

    def test_experts(self):
        for words, place, link in [([], "each rank", True), (["--replicated"], "all ranks", False)]:
            texts, bars = self.draw("experts", "--tokens", 3, *words)
            self.assertEqual(texts[0], f"experts of gpt-oss-quarter, 3 tokens of {place}, balanced, bf16")
            self.assertEqual("emulated link" in texts[1], link, texts[1])
            self.assertEqual([text.split(":")[0] for text in texts if "; exposed " in text], ["serial", "fused"])
            self.assertGreaterEqual(bars, 4)

    def test_trace_refuses(self):
        for words, sentence in [
            ([], "an operator is missing, such as matmul-all-reduce (plait trace --help)"),
            (["matmul"], "cannot trace matmul; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduse"],
             "cannot trace matmul-all-reduse; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduce", "--m", "8,9", "--n", "8", "--k", "8"], "a timeline needs exactly one size, not 2"),
            (["matmul-all-reduce", *self.SIZE, "--html", "file", "--svg", "file"],
             "--html and --svg both name file"),
            (["head"], "cannot trace head; did you mean heads? (plait trace --help)"),
            (["heads", *self.SIZE, "--head", "logits"], "--head logits is none of top, loss, loss-alone, log-probs"),
            (["heads", *self.SIZE, "--head", "top,loss"], "a timeline needs exactly one head, not 2"),
            (["experts", "--tokens", "1,2"], "a timeline needs exactly one number of tokens, not 2"),
            (["experts", "--ratio", "1,2"], "a timeline needs exactly one ratio, not 2"),
        ]:
            result = self.plait("trace", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait trace: {sentence}\n"))


if __name__ == "__main__":
    unittest.main()
