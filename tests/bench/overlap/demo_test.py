"""The output of `./do demo`: one screen, of a problem that suits the machine, whatever was measured."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DEMO = Path(__file__).resolve().parents[3] / "bench/overlap/demo.py"
PLAIT = Path(os.environ["PLAIT_BUILD"]) / "app/cli/plait"


def figures(taken, times, efficiency):
    """Figures in the form of plait bench --json."""
    return {"t_gemm_ms": taken, "t_comm_ms": 40.0, "ideal_ms": 40.0, "link": "0.5gbit,5us",
            "schedules": [{"name": name, "median_ms": time, "min_ms": 0.9 * time, "max_ms": 1.5 * time,
                           "overlap_efficiency": efficiency}
                          for name, time in zip(("serial", "pipelined", "fused"), times)]}


class DemoTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.said = Path(self.folder.name) / "said"
        self.page = Path(self.folder.name) / "timeline.html"

    def demo(self, script):
        """With another command, and what it was asked."""
        command = Path(self.folder.name) / "plait"
        command.write_text(f'#!/bin/sh\necho "$@" >> {self.said}\n{script}\n')
        command.chmod(0o755)
        return subprocess.run([sys.executable, "-B", DEMO, self.page], capture_output=True, text=True, check=False,
                              timeout=600, env={**os.environ, "PLAIT": str(command)})

    def check_screen(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertLessEqual(len(lines), 36)  # and `./do` says what it builds above
        self.assertLessEqual(max(len(line) for line in lines if "timeline" not in line), 100, result.stdout)
        for name in ("serial", "pipelined", "fused", "ideal"):
            self.assertRegex(result.stdout, rf"(?m)^  {name} +[0-9.]+ ms  =+ ")
        self.assertEqual(result.stdout.count("\n  serial "), 2)  # over a link, and without one
        self.assertEqual(result.stdout.count("\n  fused "), 2)

    def of_figures(self, *all_figures):
        self.said.unlink(missing_ok=True)
        result = self.demo(f"cat <<'END'\n{json.dumps(figures(*all_figures))}\nEND")
        self.check_screen(result)
        return result.stdout

    def test_it_takes_as_many_tokens_as_suit_the_machine(self):
        for taken, tokens in ((1000.0, 32), (8.2, 512), (0.5, 8192)):
            self.assertIn(f"\n{tokens} tokens. ", self.of_figures(taken, (80, 60, 42), 0.9))
            trial, linked, shared = self.said.read_text().splitlines()
            self.assertIn(" --m 128 --schedule serial ", trial)
            self.assertIn(f" --m {tokens} --seconds 1 --parts 4 --link ratio=1 --html {self.page} ", linked)
            self.assertIn(f" --m {tokens} --seconds 1 --schedule serial,fused ", shared)

    def test_it_says_what_was_hidden(self):
        text = self.of_figures(40.0, (80, 60, 42), 0.95)
        self.assertIn("first the product, then the all-reduce\n", text)
        self.assertIn(" 1.33 times as fast, 95 % hidden\n", text)
        self.assertIn('"fused" is 1.90 times as fast as serial. It hides 95 % of what can be hidden. '
                      "That share is the\n"
                      "overlap efficiency: 0 % is serial, 100 % is the ideal.\n", text)

    def test_where_nothing_is_faster_it_says_why(self):
        text = self.of_figures(40.0, (80, 90, 200), -0.2)
        self.assertEqual(text.count("no faster this time\n"), 3)
        self.assertNotIn("-20 %", text)
        self.assertIn("took up to 1.7 times as long in one run as in another: other programs\n", text)

    def test_times_that_do_not_add_up_prove_nothing(self):
        text = self.of_figures(32.0, (40, 44, 36), 1.0)  # 32 and 40 ms one after the other do not take 40
        self.assertNotIn("hidden", text.split("  ideal")[0].partition("  serial")[2])
        self.assertIn("Serial took less time than its product and its all-reduce took alone: other programs use", text)

    def test_it_reads_what_the_command_says(self):
        result = self.demo(f"""
            words=
            for word; do
              case $word in 2048 | 7168) word=64 ;; esac
              words="$words $word"
            done
            exec {PLAIT} $words""")
        self.check_screen(result)
        self.assertIn("<html", self.page.read_text())

    def test_an_error_of_the_command_ends_it(self):
        result = self.demo("echo no >&2; exit 3")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (3, "", "no\n"))


if __name__ == "__main__":
    unittest.main()
