"""Two hosts for tests, which are network namespaces here (tools/netlab.py), joined by a cable that can be cut.

Namespaces need root, and a system that allows them. Elsewhere the tests are skips.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import netlab  # noqa: E402, in another folder

RANK_PROGRAM = os.environ["PLAIT_RANK_PROGRAM"]
PLAIT = os.environ.get("PLAIT_COMMAND")
HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
PATIENCE = 60
BARE = netlab.bare_environment()


class Hosts(netlab.Lab):
    """Two hosts and a cable between them."""

    def have_only_ipv6(self):
        for host in range(2):
            self.ip(host, "addr", "add", f"fd77::{host + 1}/64", "dev", "v0", "nodad")
            self.ip(host, "addr", "del", f"10.77.0.{host + 1}/24", "dev", "v0")

    def connections(self):
        """Both ends of all open TCP connections."""
        return [ends for host in range(2) for ends in subprocess.run(
            self.command(host, "ss", "-Htn", "state", "established"),
            check=True, capture_output=True, text=True).stdout.splitlines()]

    def start(self, rank, world, *words, **variables):
        """Starts a rank, the odd ones on the second host."""
        place = self.place(rank, world, rank % 2, rank // 2, 1 if world == 2 else (world + 1) // 2)
        return subprocess.Popen(self.command(rank % 2, *words), env={**place, **variables}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


WHY_NOT = netlab.refusal()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class HostsCase(unittest.TestCase):
    """A test with two hosts, and with ranks that it has started on them."""

    def setUp(self):
        self.contexts = contextlib.ExitStack()
        self.addCleanup(self.contexts.close)
        self.hosts = self.contexts.enter_context(Hosts())
        self.ranks = []

    def wait_for_addresses(self):
        """UCX takes no interface with an address that the kernel still looks for on other hosts."""
        deadline = time.monotonic() + PATIENCE
        show = ["addr", "show", "tentative"]
        while any(subprocess.run(["ip", "-n", name, *show], check=True, capture_output=True).stdout
                  for name in self.hosts.names):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def start(self, world, *words, **variables):
        if variables.get("PLAIT_TRANSPORT") == "ucx" or "ucx" in words:
            self.wait_for_addresses()
        self.ranks = [self.hosts.start(rank, world, *words, **variables) for rank in range(world)]
        for rank in self.ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
        return self.ranks

    def output_of(self, rank):
        return rank.communicate(timeout=PATIENCE)[0]

    def run_on_hosts(self, shares, *words, cwd=None, agents_input="", **variables):
        """plait run --hosts, from the first host, with an agent that enters the namespace of a host."""
        folder = self.contexts.enter_context(tempfile.TemporaryDirectory())
        agent = self.hosts.write_agent(Path(folder, "agent"), agents_input)
        return subprocess.Popen(self.hosts.command(0, PLAIT, "run", "--hosts", shares, *words),
                                env={**BARE, **variables, "PLAIT_RSH": str(agent)}, cwd=cwd, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
