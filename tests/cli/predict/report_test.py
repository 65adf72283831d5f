"""plait predict: its text says what was assumed, and files that cannot be written are errors."""

import unittest

from predict_case import PredictCase


class ReportTest(PredictCase):
    def test_says_what_it_is_and_what_it_assumes(self):
        text = self.predict("matmul-all-reduce", *self.SIZE, "--device", "a100", "--ranks", 4, "--rate", 200,
                            "--memory", 1000, "--lost", 5, "--wiring", "pairs")
        self.assertTrue(text.startswith("Predicted, not measured"))
        for words in ("4 ranks; device a100: 200 TFLOP/s", "memory 1000 GB/s", "loses 5 %", "225 GB/s",
                      "between every two ranks", "speed-up"):
            self.assertIn(words, text)

    def test_a_file_that_cannot_be_written(self):
        for words in (["matmul-all-reduce", *self.SIZE], ["llama2-70b"]):
            result = self.plait("predict", *words, "--json", "/nowhere/file")
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("cannot write /nowhere/file", result.stderr)
        for words in ([], ["matmul-all-reduce"], ["llama2-70b"], ["--measured", "file"]):
            with self.subTest(words):
                self.assertIn("1 a file can't be written;", self.predict(*words, "--help"))


if __name__ == "__main__":
    unittest.main()
