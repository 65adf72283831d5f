"""An answer that can't be written is an error."""

import os
import subprocess
import unittest

from command import FULL, plait


class AnswerTest(unittest.TestCase):
    def test_standard_output_that_is_full(self):
        for words in (["info"], ["info", "--json"], ["info", "--why", "ranks=2"], ["--version"],
                      ["--help"], ["help", "run"], ["bench", "--help"], ["run", "--help"]):
            with self.subTest(words), open(FULL, "w") as full:
                result = plait(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, r"^plait( \w+)?: cannot write to standard output: "
                                                r"No space left on device\n$")

    def test_standard_output_that_is_closed(self):
        result = plait("info", preexec_fn=lambda: os.close(1))
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write to standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
