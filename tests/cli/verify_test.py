"""plait verify: what it counts, how it fails, and what it refuses."""

import json
import unittest

from command import CommandTest


class VerifyTest(CommandTest):
    def verify(self, *words):
        result = self.plait("verify", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_counts_what_it_has_run(self):
        self.assertEqual(self.verify("--cases", 24, "--seed", 5), "24 passed, 0 failed\n")

    def test_only_one_problem_in_each_world(self):
        self.assertEqual(self.verify("--only", 7, "--ranks", "2,3", "-t", "shm"), "2 passed, 0 failed\n")
        self.assertEqual(self.verify("--only", "4,9,7", "--ranks", 2, "-t", "threads"), "3 passed, 0 failed\n")

    def test_operators_of_ones_choice(self):
        for op in ["matmul-all-reduce", "all_gather_matmul,matmul"]:
            self.assertEqual(self.verify("-c", 6, "--op", op, "-t", "threads"), "6 passed, 0 failed\n")

    def test_json(self):
        words = ("--cases", 4, "--seed", 9, "--ranks", 2, "--transport", "threads", "--json", "-")
        self.assertEqual(json.loads(self.verify(*words)), {"seed": 9, "passed": 4, "failed": 0})

    def test_a_file_that_cannot_be_written_is_refused_before(self):
        result = self.plait("verify", "--cases", 100_000_000, "--json", "/nowhere/file")
        self.assert_says(result, 1, "plait verify: cannot write /nowhere/file: No such file or directory")

    def test_refusals(self):
        for words, sentence in [
            (["--cases", "0"], "--cases 0 is not a whole number from 1 to 100000000"),
            (["--ranks", "2,x"], "--ranks x is not a whole number from 1 to 64"),
            (["--transport", "tcp"], "--transport tcp is neither threads nor shm"),
            (["--op", "all-reduce"], "--op all-reduce is no operator; there are matmul, "
                                     "matmul-all-reduce, matmul-reduce-scatter, matmul-all-gather, "
                                     "all-gather-matmul, reduce-scatter-matmul and all-reduce-matmul"),
            (["more"], "unexpected word more (plait verify --help)"),
        ]:
            result = self.plait("verify", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait verify: {sentence}\n"))


if __name__ == "__main__":
    unittest.main()
