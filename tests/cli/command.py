"""The plait command under test, and helpers for tests of processes."""

import contextlib
import os
import re
import subprocess
import time
import unittest
import uuid
from pathlib import Path

PLAIT = os.environ["PLAIT_COMMAND"]
FULL = "/dev/full"  # every write to it fails: no space left on device
PATIENCE = 180  # seconds until a process counts as hung; an instrumented command on a busy core is slow


def plait(*words, **options):
    """Runs the command to its end."""
    defaults = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE}
    return subprocess.run([PLAIT, *map(str, words)], **{"text": True, **defaults, **options})


def is_alive(pid):
    """True if the process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def name_of(pid):
    """The environment of the process; None if the process has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)


class CommandTest(unittest.TestCase):
    """Marks the environment of every process that a test starts, so that it can be found."""

    def setUp(self):
        self.mark = f"PLAIT_TEST_MARK={uuid.uuid4()}"
        self.environment = {**os.environ, **dict([self.mark.split("=")])}

    def tearDown(self):
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                os.kill(pid, 9)

    def marked(self):
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark.encode() in variables and is_alive(folder.name):
                found.append(int(folder.name))
        return found

    def plait(self, *words, **options):
        return plait(*words, **{"env": self.environment, **options})

    def refuses(self, *words):
        """Returns the one sentence with which wrong usage ends."""
        result = self.plait(*words)
        self.assertEqual(result.returncode, 2, words)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        return result.stderr.strip()

    def assert_all_ranks_fail_where_rank_0_cannot_write(self, *words):
        """For two ranks started by another launcher: one reports the error, and both have the same status."""
        result = self.plait("run", "-n", 2, "--", "sh", "-c", f'"$@" > {FULL}; echo "status $?"', "-", PLAIT, *words)
        self.assertEqual(sorted(re.findall(r"status \d+", result.stdout)), ["status 1"] * 2, result.stderr)
        self.assertEqual(result.stderr.count("cannot write to standard output"), 1, result.stderr)

    def start(self, *words, **options):
        """Starts the command with pipes; the caller waits for it."""
        defaults = {"env": self.environment, "stdin": subprocess.DEVNULL, "text": True,
                    "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([PLAIT, *map(str, words)], **{**defaults, **options})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                self.addCleanup(stream.close)
        return process

    def assert_says(self, result, status, *sentences):
        """The exit status, and exactly these lines on standard error."""
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, lines), (status, list(sentences)))

    def assert_nothing_left(self):
        wait_until(lambda: not self.marked(), f"processes left: {self.marked()}")
