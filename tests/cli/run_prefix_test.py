"""plait run --prefix: whole lines, each after its rank."""

import collections
import re
import subprocess
import sys
import unittest

from command import PATIENCE, CommandTest, name_of, wait_until

# Writes numbered lines of many lengths, in pieces that don't end at line ends.
FLOOD = """
import os, sys
rank = os.environ["PLAIT_RANK"]
for fd, name in ((1, "out"), (2, "err")):
    text = b"".join(b"%s %s %d %s\\n" % (rank.encode(), name.encode(), i, b"x" * (i * 37 % 5000))
                    for i in range(LINES))
    at = 0
    while at < len(text):
        at += os.write(fd, text[at:at + 1 + at * 31 % 7000])
"""
LINES = 800


class PrefixTest(CommandTest):
    def prefixed(self, ranks, code, **options):
        options = {"text": False, **options}
        return self.plait("run", "-n", ranks, "-p", sys.executable, "-c", code, **options)

    def check_flood(self, output, names, ranks):
        last = collections.Counter()
        for line in output.splitlines():
            match = re.fullmatch(rb"\[(\d+)\] (\d+) (out|err) (\d+) (x*)", line)
            self.assertTrue(match, line[:100])
            prefix, rank, name, number, filling = match.groups()
            self.assertEqual(prefix, rank)
            self.assertIn(name.decode(), names)
            self.assertEqual(int(number), last[rank, name])
            self.assertEqual(len(filling), int(number) * 37 % 5000)
            last[rank, name] += 1
        self.assertEqual(sorted(last.values()), [LINES] * len(names) * ranks)

    def test_lines_stay_whole_and_in_order_and_streams_apart(self):
        result = self.prefixed(4, FLOOD.replace("LINES", str(LINES)))
        self.assertEqual(result.returncode, 0)
        self.check_flood(result.stdout, ["out"], 4)
        self.check_flood(result.stderr, ["err"], 4)

    def test_lines_stay_whole_where_both_streams_go_to_one_place(self):
        result = self.prefixed(
            4, FLOOD.replace("LINES", str(LINES)),
            capture_output=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.check_flood(result.stdout, ["out", "err"], 4)

    def test_bytes_of_any_value_pass(self):
        every = bytes(byte for byte in range(256) if byte != 10)
        result = self.prefixed(1, "import os; os.write(1, bytes(b for b in range(256) if b != 10))")
        self.assertEqual(result.stdout, b"[0] " + every + b"\n")

    def test_a_long_line_stays_whole(self):
        size = 3_000_000
        result = self.prefixed(2, f"import sys; sys.stdout.write('y' * {size} + '\\n')")
        expected = sorted(b"[%d] " % rank + b"y" * size for rank in range(2))
        self.assertEqual(sorted(result.stdout.splitlines()), expected)

    def test_a_reader_that_has_gone_ends_the_ranks_as_it_would_without_a_prefix(self):
        process = self.start("run", "-n", 2, "-p", "yes", stderr=subprocess.DEVNULL)
        self.assertIn("] y\n", process.stdout.readline())
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 128 + 13)
        self.assertEqual(self.marked(), [])

    def test_a_reader_that_does_not_read_holds_up_no_signal(self):
        process = self.start("run", "-n", 2, "-p", "yes", stderr=subprocess.DEVNULL)
        self.assertIn("] y\n", process.stdout.readline())
        process.terminate()
        # The ranks end although their output is not read; plait run keeps it for the reader.
        wait_until(lambda: not self.running("yes"), "the ranks end")
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + 15)

    def running(self, name):
        return [pid for pid in self.marked() if name_of(pid) == name]


if __name__ == "__main__":
    unittest.main()
