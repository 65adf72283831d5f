"""plait run on a terminal: Ctrl-C, Ctrl-Z and rank 0's prompt."""

import os
import pty
import re
import signal
import sys
import unittest

from command import PLAIT, CommandTest, wait_until


class Terminal:
    """A command in the foreground of a terminal of its own."""

    def __init__(self, words, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, environment)
        self.seen = ""

    def read_until(self, pattern):
        while not re.search(pattern, self.seen):
            self.seen += os.read(self.fd, 4096).decode()
        return self.seen

    def type(self, text):
        os.write(self.fd, text.encode())

    def finish(self):
        """The exit status, after all output has been written."""
        try:
            while piece := os.read(self.fd, 4096):
                self.seen += piece.decode()
        except OSError:  # the terminal's other end is closed
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class TerminalTest(CommandTest):
    def setUp(self):
        super().setUp()
        signal.alarm(60)  # a terminal's read() has no deadline

    def tearDown(self):
        super().tearDown()
        signal.alarm(0)

    def open(self, *words):
        return Terminal([PLAIT, *map(str, words)], self.environment)

    def test_ctrl_c(self):
        for options in ([], ["-p"]):
            with self.subTest(options):
                code = "echo ready; sleep 60; true"
                terminal = self.open("run", "-n", 2, *options, "sh", "-c", code)
                terminal.read_until("(?s)ready.*ready")
                terminal.type("\x03")
                self.assertEqual(terminal.finish(), 130)
                self.assertIn("\nplait run: SIGINT: waiting up to 5 s for ", terminal.seen)
                self.assertEqual(self.marked(), [])

    def test_every_rank_gets_ctrl_c_exactly_once(self):
        code = (
            "import os, signal, time\n"
            "rank = os.environ['PLAIT_RANK']\n"
            "times = []\n"
            "def got(*_):\n"
            "    os.write(1, f'got {rank}\\n'.encode())\n"
            "    times.append(time.monotonic())\n"
            "signal.signal(signal.SIGINT, got)\n"
            "print('ready', flush=True)\n"
            "while not times or time.monotonic() < times[-1] + 0.7: time.sleep(0.05)\n"
        )
        terminal = self.open("run", "-n", 2, "--", sys.executable, "-c", code)
        terminal.read_until("(?s)ready.*ready")
        terminal.type("\x03")
        self.assertEqual(terminal.finish(), 130)
        self.assertEqual(
            sorted(re.findall(r"got \d", terminal.seen)), ["got 0", "got 1"], terminal.seen
        )

    def test_ctrl_c_twice(self):
        code = "trap '' INT; echo ready; while true; do sleep 0.05; done"
        terminal = self.open("run", "-n", 2, "--grace", "1h", "sh", "-c", code)
        terminal.read_until("(?s)ready.*ready")
        terminal.type("\x03")
        terminal.read_until("another Ctrl-C kills")

        def ask_again():
            terminal.type("\x03")
            return not [pid for pid in self.marked() if pid != terminal.pid]

        wait_until(ask_again, "the second Ctrl-C kills")
        self.assertEqual(terminal.finish(), 130)

    def test_rank_0_can_ask_the_user(self):
        code = "test $PLAIT_RANK = 1 && exit 0; test -t 0 && read -r line && echo \"heard $line\""
        terminal = self.open("run", "-n", 2, "sh", "-c", code)
        terminal.type("a word\n")
        self.assertEqual(terminal.finish(), 0)
        self.assertIn("heard a word", terminal.seen)


if __name__ == "__main__":
    unittest.main()
