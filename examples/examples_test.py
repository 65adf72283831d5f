"""The examples do what their first lines say. PLAIT_COMMAND and PLAIT_EXAMPLES say where they were built."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

COMMAND = os.environ["PLAIT_COMMAND"]
EXAMPLES = Path(os.environ["PLAIT_EXAMPLES"])
DEADLINE = 60  # seconds; nothing here takes more than one or two


def run(*words):
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def run_ranks(world, example):
    return run(COMMAND, "run", "-n", world, "--", EXAMPLES / example)


class Examples(unittest.TestCase):
    def expect_exchange(self, world):
        done = run_ranks(world, "01_exchange")
        self.assertEqual(done.returncode, 0, done.stderr)
        total = world * (world + 1) // 2
        expected = [
            f"rank {rank} of {world}: hello from rank {(rank - 1) % world}; sum {total}"
            for rank in range(world)
        ]
        self.assertEqual(sorted(done.stdout.splitlines()), expected)

    def test_exchange(self):
        for world in 1, 2, 3:
            with self.subTest(world=world):
                self.expect_exchange(world)

    def test_exchange_without_a_launcher(self):
        done = run(EXAMPLES / "01_exchange")
        self.assertEqual(done.stdout, "rank 0 of 1: hello from rank 0; sum 1\n", done.stderr)

    def test_threads(self):
        with tempfile.TemporaryDirectory() as folder:
            timeline = Path(folder) / "timeline.json"
            done = run(EXAMPLES / "02_threads", timeline)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("4 ranks gathered 262144 elements each", done.stdout)
            events = json.loads(timeline.read_text(encoding="utf-8"))["traceEvents"]
        tiles = {event["pid"] for event in events if event.get("name") == "tile"}
        self.assertEqual(len(tiles), 4)
        gathers = {event["pid"] for event in events if "all_gather" in event.get("name", "")}
        self.assertEqual(len(gathers), 4)

    def test_lost_rank(self):
        done = run_ranks(3, "03_lost_rank")
        self.assertEqual(done.returncode, 128 + 9, done.stderr)
        heard = [line for line in done.stderr.splitlines() if line.startswith("peer_lost")]
        self.assertEqual(len(heard), 2, done.stderr)
        for line in heard:
            self.assertRegex(line, r"^peer_lost, culprit 2: all_reduce: rank [01] waits for ")
            self.assertRegex(line, r"; rank 2 \(pid \d+\) has died$")
        self.assertEqual(heard[0], heard[1])

    def test_matmul(self):
        done = run(EXAMPLES / "04_matmul")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = re.fullmatch(
            r"\w+: 768 KiB of weight; \w+: 193 KiB, off by (\d\.\d\d) %\n", done.stdout
        )
        self.assertIsNotNone(said, done.stdout)
        self.assertGreater(float(said[1]), 0.05)
        self.assertLess(float(said[1]), 0.6)  # a step of 1/127 is off by a 250th at most

    def test_two_ranks(self):
        for world in 1, 2, 3:
            with self.subTest(world=world):
                done = run_ranks(world, "05_two_ranks")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf"^{world} ranks: the layer differs from that of one rank by \d")

    def test_see_the_overlap(self):
        with tempfile.TemporaryDirectory() as folder:
            timeline = Path(folder) / "timeline.json"
            done = run(EXAMPLES / "06_see_the_overlap", timeline)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"^serial [\d.]+ ms, fused [\d.]+ ms, the same bits\n$")
            events = json.loads(timeline.read_text(encoding="utf-8"))["traceEvents"]
        names = {event.get("name") for event in events}
        self.assertTrue({"product", "sum", "copy", "chunk"} <= names, names)


if __name__ == "__main__":
    unittest.main()
