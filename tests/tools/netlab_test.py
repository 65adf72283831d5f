"""tools/netlab.py: hosts reach one another, and nothing of them is left, however a lab ends."""

import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

NETLAB = Path(__file__).resolve().parents[2] / "tools" / "netlab.py"
sys.path.insert(0, str(NETLAB.parent))
import netlab  # noqa: E402, in another folder

PATIENCE = 60
WHY_NOT = netlab.refusal()

# Every host sends its number to the first one, which adds them up.
SUM = """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    listener = socket.create_server(("10.77.0.1", 5000), backlog=world)
    print(sum(int(listener.accept()[0].recv(10)) for _ in range(world - 1)))
while rank > 0:
    try:
        socket.create_connection(("10.77.0.1", 5000)).sendall(b"%d" % rank)
        break
    except ConnectionRefusedError:
        pass
"""


def call(*words):
    return subprocess.run([NETLAB, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def namespaces_of(pid):
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if line.startswith(f"netlab-{pid}-")]


@unittest.skipIf(WHY_NOT, WHY_NOT)


class NetlabTest(unittest.TestCase):
    def test_hosts_reach_one_another(self):
        for hosts in (1, 2, 4):
            done = call("--hosts", str(hosts), "--rate", "5gbit", "--", sys.executable, "-c", SUM)
            self.assertEqual((done.returncode, done.stdout), (0, f"{hosts * (hosts - 1) // 2}\n"), done.stderr)

    def start(self):
        """A lab whose commands would run for long."""
        lab = subprocess.Popen([NETLAB, "--hosts", "3", "--", "sh", "-c", "echo $$; exec sleep 1000"],
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(lab.communicate)
        self.addCleanup(lab.terminate)  # a killed one leaves commands that hold the pipe
        commands = [Path("/proc", lab.stdout.readline().strip()) for _ in range(3)]
        self.assertEqual(len(namespaces_of(lab.pid)), 4)
        return lab, commands

    def assert_ended(self, commands):
        deadline = time.monotonic() + PATIENCE
        while any(self.is_running(command) for command in commands):
            self.assertLess(time.monotonic(), deadline, "a command outlives its lab")
            time.sleep(0.01)

    @staticmethod
    def is_running(process):
        try:
            return b"sleep" in (process / "cmdline").read_bytes()
        except OSError:
            return False

    def test_nothing_is_left_after_a_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            lab, commands = self.start()
            lab.send_signal(number)
            self.assertEqual(lab.wait(PATIENCE), 128 + number)
            self.assertEqual(namespaces_of(lab.pid), [])
            self.assert_ended(commands)

    def test_the_next_lab_removes_what_a_killed_one_has_left(self):
        lab, commands = self.start()
        lab.kill()
        lab.wait(PATIENCE)
        self.assertEqual(len(namespaces_of(lab.pid)), 4)
        other, _ = self.start()
        self.assertEqual(namespaces_of(lab.pid), [])
        self.assert_ended(commands)
        self.assertEqual(len(namespaces_of(other.pid)), 4)  # a lab that lives is left alone


if __name__ == "__main__":
    unittest.main()
