"""Verbs that measure start their ranks, or join those of a launcher."""

import json
import signal
import unittest

from command import PLAIT, wait_until
from operator_case import OperatorCase


class AsRanksTest(OperatorCase):
    def test_under_plait_run(self):
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE,
                            "--json", "-")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.check(json.loads(result.stdout), "all-gather-matmul")

    def test_messages_about_ranks_name_the_command_that_was_typed(self):
        process = self.start("bench", "all-gather-matmul", *self.SIZE[:6], "--repeat", 1000, "--link", "1s")
        wait_until(lambda: len(self.marked()) > 2, "two ranks")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
        self.assertTrue(said.startswith("plait bench: SIGTERM: waiting up to 5 s for ranks 0 and 1 to end"), said)

    def test_all_ranks_refuse_what_memory_cannot_hold(self):
        problem = ["matmul-all-reduce", "--m", 1 << 24, "--n", 1 << 24, "--k", 8]
        sentence = r"plait bench: m=16777216 n=16777216 k=8 with 3 ranks may take .*; available are .*"
        for words in (["bench", *problem, "--ranks", 3, "--transport", "threads"],
                      ["bench", *problem, "--ranks", 3],
                      ["run", "-n", 3, "--", PLAIT, "bench", *problem]):
            with self.subTest(words):
                result = self.plait(*words)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                lines = [line for line in result.stderr.splitlines() if line.startswith("plait bench: m=")]
                self.assertEqual(len(lines), 1, result.stderr)
                self.assertRegex(lines[0], sentence)


if __name__ == "__main__":
    unittest.main()
