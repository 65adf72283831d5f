"""plait bench matmul: its files, and its progress on a terminal."""

import os
import pty
import tempfile
import unittest
from pathlib import Path

from command import PATIENCE
from matmul_case import MatmulCase


class MatmulTest(MatmulCase):
    def test_a_file_that_cannot_be_written_is_refused_before(self):
        # The measurement would take too long for the test.
        result = self.plait("bench", "matmul", "-m", 8, "--n", 64, "--k", 64, "--seconds", 3600,
                            "--json", "/nowhere/file")
        self.assert_says(result, 1, "plait bench: cannot write /nowhere/file: No such file or directory")

    def test_a_run_that_fails_leaves_its_file_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file.json"
            file.write_text("of before")
            result = self.plait("bench", "matmul", "-m", 8, *self.SIZE, "--weight", "s5", "--json", file)
            self.assertEqual(result.returncode, 2)
            self.assertEqual((file.read_text(), os.listdir(folder)), ("of before", ["file.json"]))

    def test_whoever_waits_at_a_terminal_sees_how_far_it_is(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        words = ("bench", "matmul", "-m", 2, "-n", 64, "-k", 64, "-t", 1, "--seconds", 8)
        process = self.start(*words, stderr=theirs)
        os.close(theirs)
        out = process.communicate(timeout=PATIENCE)[0]
        seen = b""
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:  # the terminal's other end is closed
            pass
        self.assertRegex(seen.decode(), r"^\r\x1b\[Kmeasuring, repetition: \d+ of \d+, [^\r]+ left\r")
        self.assertTrue(seen.endswith(b"\r\x1b[K"), "the line is removed at the end")
        self.assertNotIn("measuring", out)

    def test_a_file_that_cannot_be_written(self):
        result = self.plait("bench", "matmul", "-m", 2, *self.SIZE, "--json", "/nonexistent/a.json")
        self.assert_says(result, 1, "plait bench: cannot write /nonexistent/a.json: "
                                    "No such file or directory")


if __name__ == "__main__":
    unittest.main()
