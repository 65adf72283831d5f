"""plait's behaviour when its output is not read: readers that are stuck, gone, or full."""

import os
import pty
import signal
import subprocess
import unittest

from command import FULL, PATIENCE, PLAIT, CommandTest


class StuckTest(CommandTest):
    """Standard error is a pipe that is full, and its reader does not read."""

    def start_stuck(self, *words, fill=False):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        if fill:
            os.set_blocking(writer, False)
            for size in (4096, 1):
                try:
                    while True:
                        os.write(writer, b"x" * size)
                except BlockingIOError:
                    pass
            os.set_blocking(writer, True)
        process = self.start("run", "-n", 2, *words, stderr=writer)
        os.close(writer)
        return process

    def flood(self, *options):
        process = self.start_stuck(*options, "--", "sh", "-c", "echo ready; exec yes stuck >&2")
        for _ in range(2):
            self.assertIn("ready\n", process.stdout.readline())
        return process

    def test_signals_end_it(self):
        # Each waits two seconds for its reader, at the same time.
        floods = [(number, self.flood()) for number in (signal.SIGINT, signal.SIGTERM)]
        for number, process in floods:
            process.send_signal(number)
        for number, process in floods:
            with self.subTest(number.name):
                self.assertEqual(process.wait(PATIENCE), 128 + number)
        self.assert_nothing_left()

    def test_the_time_limit_ends_it(self):
        floods = [(options, self.flood(*options, "--timeout", "1s")) for options in ([], ["-p"])]
        for options, process in floods:
            with self.subTest(options):
                self.assertEqual(process.wait(PATIENCE), 124)
        self.assert_nothing_left()

    def test_a_failed_rank_ends_it(self):
        process = self.start_stuck("--linger", "100ms", "--", "sh", "-c",
                                   "[ $PLAIT_RANK = 1 ] && exit 5; sleep 60", fill=True)
        self.assertEqual(process.wait(PATIENCE), 5)
        self.assert_nothing_left()

    def test_a_refusal_ends(self):
        process = self.start_stuck("--", "no-such-command", fill=True)
        self.assertEqual(process.wait(PATIENCE), 127)

    def test_the_pipe_still_blocks_those_who_share_it(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        self.assertEqual(self.plait("run", "-n", 2, "false", capture_output=False,
                                    stderr=writer).returncode, 1)
        self.assertTrue(os.get_blocking(writer))
        self.assertIn(b"plait run: rank ", os.read(reader, 4096))


class GoneTest(CommandTest):
    """Standard output is a pipe whose reader has ended, as `head` does after some lines."""

    def test_it_ends_quietly(self):
        sizes = ["--m", 16, "--n", 64, "--k", 64, "--repeat", 1]
        problem = ["matmul-all-reduce", *sizes]
        for words in (["bench", *problem], ["bench", *problem, "--transport", "threads"], ["trace", *problem],
                      ["bench", "layer", "column", *sizes], ["info"], ["--help"]):
            with self.subTest(words):
                reader, writer = os.pipe()
                os.close(reader)
                process = self.start(*words, stdout=writer)
                os.close(writer)
                self.assertEqual(process.stderr.read(), "")
                self.assertIn(process.wait(PATIENCE), (128 + signal.SIGPIPE, -signal.SIGPIPE))
        self.assert_nothing_left()


class BrokenTest(CommandTest):
    """Standard error takes nothing."""

    def status(self, *words):
        with open(FULL, "w") as full:
            return self.plait(*words, capture_output=False, stdout=subprocess.DEVNULL,
                              stderr=full).returncode

    def test_the_status_stays_what_it_is(self):
        self.assertEqual(self.status("frob"), 2)
        self.assertEqual(self.status("info", "--frob"), 2)
        self.assertEqual(self.status("run", "-n", 2, "no-such-command"), 127)
        for options in ([], ["-p"], ["-v"]):
            with self.subTest(options):
                words = ["run", "-n", 2, *options, "--", "sh", "-c", "exit 3"]
                self.assertEqual(self.status(*words), 3)

    def test_a_reader_that_has_gone(self):
        for words, status in ((["frob"], 2), (["run", "-n", 2, "sh", "-c", "exit 3"], 3)):
            reader, writer = os.pipe()
            os.close(reader)
            result = self.plait(*words, capture_output=False, stderr=writer)
            os.close(writer)
            self.assertEqual(result.returncode, status)

    def test_a_terminal_that_hangs_up_lets_the_ranks_end_in_order(self):
        # Output to the terminal that is gone is lost, but does no harm.
        save = "echo saving; sleep 0.3; echo saving >&2; echo saved >&3; exit 7"
        rank = f"trap '{save}' HUP; echo ready >&3; while :; do sleep 0.05; done"
        for options in ([], ["-p"]):
            with self.subTest(options):
                hear, tell = os.pipe()
                pid, terminal = pty.fork()
                if pid == 0:
                    # It leads the session and lives on; otherwise the kernel would send the ranks SIGHUP too.
                    os.dup2(tell, 3)
                    run = subprocess.Popen([PLAIT, "run", "-n", "2", *options, "sh", "-c", rank],
                                           env=self.environment, pass_fds=[3])
                    signal.signal(signal.SIGHUP, lambda *_: run.send_signal(signal.SIGHUP))
                    os._exit(run.wait() & 0xFF)
                os.close(tell)
                said = os.fdopen(hear)
                self.addCleanup(said.close)
                for _ in range(2):
                    self.assertEqual(said.readline(), "ready\n")
                os.close(terminal)
                self.assertEqual(said.read(), "saved\nsaved\n")
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                self.assertEqual(status, 128 + signal.SIGHUP)


if __name__ == "__main__":
    unittest.main()
