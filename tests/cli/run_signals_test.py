"""plait run and signals: they reach every rank, and no process outlives it."""

import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

from command import PATIENCE, CommandTest, name_of, wait_until

# Prints that it is ready, then the signals that it gets. It sleeps briefly, because a signal that comes just before a
# sleep is handled after it.
LISTENER = """
import os, signal, sys, time
def got(number, frame):
    os.write(1, f"{os.environ['PLAIT_RANK']} got {signal.Signals(number).name}\\n".encode())
    if number not in (signal.SIGUSR1, signal.SIGUSR2): sys.exit(0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, got)
os.write(1, b"ready\\n")
while True: time.sleep(0.1)
"""

STUBBORN = "trap '' INT TERM; echo ready; while true; do sleep 0.05; done"


class SignalsTest(CommandTest):
    def start_ready(self, *words, ranks=2, **more):
        """Starts plait run, and waits until its ranks have said that they are ready."""
        process = self.start("run", *words, **more)
        for _ in range(ranks):
            self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def start_listeners(self, ranks, *options, **more):
        return self.start_ready("-n", ranks, *options, sys.executable, "-c", LISTENER, ranks=ranks, **more)

    def test_signals_that_end_a_run_are_forwarded(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                process = self.start_listeners(3)
                process.send_signal(number)
                out, err = process.communicate(timeout=PATIENCE)
                got = [f"{rank} got {number.name}" for rank in range(3)]
                self.assertEqual(sorted(out.splitlines()), got)
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(len(err.splitlines()), 1)
                sentence = f"plait run: {number.name}: waiting up to 5 s for ranks 0, 1 and 2"
                self.assertIn(sentence, err)

    def test_user_signals_are_forwarded_and_end_nothing(self):
        process = self.start_listeners(2)
        process.send_signal(signal.SIGUSR1)
        lines = sorted(process.stdout.readline() for _ in range(2))
        self.assertEqual(lines, ["0 got SIGUSR1\n", "1 got SIGUSR1\n"])
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_a_signal_reaches_what_a_shell_script_started(self):
        self.environment["LISTENER"] = LISTENER
        process = self.start("run", "-n", 2, "sh", "-c", f'{sys.executable} -c "$LISTENER"; true')
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(sorted(out.splitlines()), ["0 got SIGTERM", "1 got SIGTERM"])
        self.assertEqual(self.marked(), [])

    def stubborn(self, *options):
        return self.start_ready("-n", 2, *options, "sh", "-c", STUBBORN)

    def test_ranks_that_ignore_a_signal_are_killed_after_the_grace(self):
        process = self.stubborn("--grace", "300ms")
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn("plait run: killing ranks 0 and 1, which did not end after SIGTERM", err)
        self.assertEqual(self.marked(), [])

    def test_an_agent_that_does_not_heed_its_input_is_killed(self):
        """It gets no signal before, since that would lose the last output of the ranks."""
        with tempfile.TemporaryDirectory() as folder:
            agent = Path(folder, "agent")
            agent.write_text("#!/bin/sh\nexec sleep 300\n")
            agent.chmod(0o755)
            self.environment["PLAIT_RSH"] = str(agent)
            run = self.plait("run", "--hosts", "node1:1,node2:1", "--timeout", "100ms", "--grace", "0s", "--", "true")
        self.assertEqual(run.returncode, 124)
        self.assertIn("plait run: killing the runs on node1 and node2, which did not end after SIGTERM", run.stderr)
        self.assertEqual(self.marked(), [])

    def test_a_second_signal_kills_at_once(self):
        process = self.stubborn("--grace", "1h")
        process.send_signal(signal.SIGINT)
        self.assertIn("another Ctrl-C kills", process.stderr.readline())

        def ask_again():
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        wait_until(ask_again, "the second signal kills")
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(self.marked(), [])

    def on_hosts(self):
        """Options that start a rank on each of two hosts, which are this one."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        agent = Path(folder.name, "agent")
        # The command that it starts is in another session, as with ssh.
        agent.write_text('#!/bin/sh\nexec setsid --wait sh -c "$2"\n')
        agent.chmod(0o755)
        self.environment["PLAIT_RSH"] = str(agent)
        return "--hosts", "node1:1,node2:1"

    def test_signals_reach_the_ranks_on_other_hosts(self):
        process = self.start_ready(*self.on_hosts(), sys.executable, "-c", LISTENER)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
            process.send_signal(number)
            got = sorted(process.stdout.readline() for _ in range(2))
            self.assertEqual(got, [f"{rank} got {number.name}\n" for rank in range(2)])
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(err, "plait run: SIGINT: waiting up to 5 s for the runs on node1 and node2 to end; "
                              "another Ctrl-C kills\n")

    def test_a_second_signal_kills_the_ranks_on_other_hosts_at_once(self):
        process = self.start_ready(*self.on_hosts(), "--grace", "1h", "sh", "-c", STUBBORN)
        process.send_signal(signal.SIGINT)
        self.assertIn("another Ctrl-C kills", process.stderr.readline())
        time.sleep(0.3)  # a signal that comes sooner counts as the same request
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual(sorted(err.splitlines()), [
            "plait run: killing rank 0, which did not end after SIGINT",
            "plait run: killing rank 1, which did not end after SIGINT",
            "plait run: killing the runs on node1 and node2, which did not end after SIGINT"])
        self.assert_nothing_left()

    def test_stopping_it_stops_the_ranks_on_other_hosts(self):
        process = self.start_ready(*self.on_hosts(), sys.executable, "-c", LISTENER, preexec_fn=os.setpgrp)
        self.expect_that_it_stops_and_continues(process)

    def test_a_stopped_rank_still_ends(self):
        process = self.start_listeners(2, "--grace", "60s")
        for pid in self.marked():
            if pid != process.pid:
                os.kill(pid, signal.SIGSTOP)
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(sorted(out.splitlines()), ["0 got SIGTERM", "1 got SIGTERM"], err)

    def test_stopping_it_stops_the_ranks_and_continuing_continues_them(self):
        # It runs in a group of its own, as a shell starts it; an orphaned group cannot be stopped.
        process = self.start_listeners(2, preexec_fn=os.setpgrp)

        self.expect_that_it_stops_and_continues(process)

    def expect_that_it_stops_and_continues(self, process):
        def states():
            ranks = [pid for pid in self.marked() if (name_of(pid) or "").startswith("python")]
            stats = [Path(f"/proc/{pid}/stat").read_text() for pid in ranks]
            return sorted(stat.rpartition(")")[2].split()[0] for stat in stats)

        process.send_signal(signal.SIGTSTP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]))
        wait_until(lambda: states() == ["T", "T"], "the ranks stop")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: states() == ["S", "S"], "the ranks go on")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_a_signal_that_was_ignored_stays_ignored(self):
        # nohup ignores SIGHUP like this.
        process = self.start(
            "run", "-n", 1, "sh", "-c", "echo ready; kill -HUP $$; echo alive; read line; exit 5",
            stdin=-1, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.stdout.readline(), "alive\n")
        process.communicate("go on\n", timeout=PATIENCE)
        self.assertEqual(process.returncode, 5)

    def test_nothing_outlives_a_launcher_that_was_killed(self):
        # The shell is the rank and has a child; another child has left the rank's group.
        code = "setsid sleep 60 & echo ready; sleep 60; true"
        for options in ([], ["-p"]):
            with self.subTest(options):
                process = self.start("run", "-n", 3, *options, "sh", "-c", code)
                for _ in range(3):
                    self.assertIn("ready", process.stdout.readline())
                wait_until(lambda: len(self.marked()) >= 10, "all have started")
                process.kill()
                process.wait(PATIENCE)
                self.assert_nothing_left()

    def test_ranks_die_with_their_launcher_even_if_its_guard_is_killed_first(self):
        process = self.start_listeners(2)
        guards = [pid for pid in self.marked() if name_of(pid) == "run-guard"]
        self.assertEqual(len(guards), 1)
        os.kill(guards[0], signal.SIGKILL)
        process.kill()
        process.wait(PATIENCE)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
