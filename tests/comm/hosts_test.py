"""Ranks on several hosts, which are network namespaces here: two of them, joined by a cable that can be cut.

Namespaces need root, and a system that allows them. Elsewhere the tests are skips.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

RANK_PROGRAM = os.environ["PLAIT_RANK_PROGRAM"]
HOST_PROGRAM = os.environ["PLAIT_HOST_PROGRAM"]
PLAIT = os.environ.get("PLAIT_COMMAND")
HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
PATIENCE = 60
LAUNCHERS = re.compile("^(PLAIT_|OMPI_|PMIX_|PMI_|SLURM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|TORCHELASTIC_)")
BARE = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def is_command(process, *words):
    """Whether a process runs this command; one that has ended does not."""
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[:len(words)] == list(words)
    except OSError:
        return False


class Hosts:
    """Two namespaces and a cable between them."""

    def __init__(self):
        self.names = [f"plait{os.getpid()}{letter}" for letter in "ab"]

    def __enter__(self):
        try:
            self.lay_the_cable()
        except BaseException:
            self.__exit__()
            raise
        return self

    def lay_the_cable(self):
        for name in self.names:
            ip("netns", "add", name)
        first, second = self.names
        ip("link", "add", "v0", "netns", first, "type", "veth", "peer", "name", "v0", "netns", second)
        for number, name in enumerate(self.names, start=1):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "v0")
            ip("-n", name, "link", "set", "v0", "up")

    def lay_another_cable(self):
        first, second = self.names
        ip("link", "add", "v1", "netns", first, "type", "veth", "peer", "name", "v1", "netns", second)
        for number, name in enumerate(self.names, start=1):
            ip("-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "v1")
            ip("-n", name, "link", "set", "v1", "up")

    def have_only_ipv6(self):
        for number, name in enumerate(self.names, start=1):
            ip("-n", name, "addr", "add", f"fd77::{number}/64", "dev", "v0", "nodad")
            ip("-n", name, "addr", "del", f"10.77.0.{number}/24", "dev", "v0")

    def connections(self):
        """Both ends of all open TCP connections."""
        return [ends for name in self.names for ends in subprocess.run(
            ["ip", "netns", "exec", name, "ss", "-Htn", "state", "established"],
            check=True, capture_output=True, text=True).stdout.splitlines()]

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def cut_the_cable(self):
        ip("-n", self.names[1], "link", "set", "v0", "down")

    def start(self, rank, world, *words, **variables):
        """Starts a rank, the odd ones on the second host."""
        place = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank // 2),
                 "LOCAL_WORLD_SIZE": str((world + 1) // 2), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}
        if world == 2:
            place["LOCAL_WORLD_SIZE"] = "1"
        return subprocess.Popen(["ip", "netns", "exec", self.names[rank % 2], *words],
                                env={**BARE, **place, **variables}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def hosts_are_allowed():
    try:
        with Hosts() as hosts:
            ip("netns", "exec", hosts.names[1], "true")
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@unittest.skipUnless(hosts_are_allowed(), "the system allows no network namespaces")
class HostsTest(unittest.TestCase):
    def setUp(self):
        self.contexts = contextlib.ExitStack()
        self.addCleanup(self.contexts.close)
        self.hosts = self.contexts.enter_context(Hosts())
        self.ranks = []

    def wait_for_addresses(self):
        """UCX takes no interface with an address that the kernel still looks for on other hosts."""
        deadline = time.monotonic() + PATIENCE
        while any(subprocess.run(["ip", "-n", name, "addr", "show", "tentative"], check=True, capture_output=True).stdout
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

    def test_ranks_meet_and_sum_up(self):
        for world in (2, 3, 4):
            said = "".join(self.output_of(rank) for rank in self.start(world, RANK_PROGRAM))
            total = world * (world + 1) // 2
            self.assertEqual(sorted(said.splitlines()), [
                f"rank {rank} of {world}, started by torch.distributed, over tcp: the sum is {total}"
                for rank in range(world)])

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_ranks_meet_over_ucx_and_sum_up(self):
        for variables in ({}, {"UCX_TLS": "tcp"}, {"UCX_RNDV_THRESH": "64"}):
            for world in (2, 4):
                said = "".join(self.output_of(rank)
                               for rank in self.start(world, RANK_PROGRAM, PLAIT_TRANSPORT="ucx", **variables))
                total = world * (world + 1) // 2
                self.assertEqual(sorted(said.splitlines()), [
                    f"rank {rank} of {world}, started by torch.distributed, over ucx: the sum is {total}"
                    for rank in range(world)])

    def test_an_interface_that_is_not_there(self):
        for rank in self.start(2, RANK_PROGRAM, PLAIT_INTERFACE="eth77", PLAIT_TIMEOUT="1s"):
            self.assertIn("PLAIT_INTERFACE=eth77: this host has no interface of this name", self.output_of(rank))

    def test_chunks_go_by_the_interface_that_is_chosen(self):
        self.hosts.lay_another_cable()
        for chosen, other in (("v1", "10.77."), ("v0", "10.78.")):
            ranks = self.start(4, HOST_PROGRAM, "idle", PLAIT_INTERFACE=chosen)
            for rank in ranks:
                self.assertEqual(rank.stdout.readline(), "ready\n")
            connections = self.hosts.connections()
            self.assertEqual(len(connections), 12, connections)  # both ends of one for each two ranks
            self.assertFalse([one for one in connections if other in one], connections)
            for rank in ranks:
                rank.kill()
                rank.wait()

    @unittest.skipUnless(Path("/proc/net/if_inet6").exists(), "the system has no IPv6")
    def test_ranks_meet_over_ipv6(self):
        self.hosts.have_only_ipv6()
        for world in (2, 4):
            for rank in self.start(world, RANK_PROGRAM, MASTER_ADDR="fd77::1"):
                self.assertIn(f"over tcp: the sum is {world * (world + 1) // 2}", self.output_of(rank))
        if PLAIT:
            run = self.run_on_hosts("[fd77::1]:1,[fd77::2]:2", "--", RANK_PROGRAM)
            said = run.communicate(timeout=PATIENCE)[0]
            self.assertEqual((run.returncode, said.count("the sum is 6")), (0, 3), said)

    def lose(self, what, how, **variables):
        """What rank 0 hears, and after how many seconds, when `how` happens to rank 1."""
        ranks = self.start(2, HOST_PROGRAM, what, **variables)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        time.sleep(0.3)
        start = time.monotonic()
        how(ranks[1])
        heard = self.output_of(ranks[0])
        return heard, time.monotonic() - start

    def test_a_killed_rank_is_named_at_once(self):
        for what in ("stream", "idle"):
            heard, seconds = self.lose(what, lambda rank: rank.send_signal(signal.SIGKILL))
            self.assertRegex(heard, r"^peer_lost, culprit 1: .*rank 1 \(pid \d+ on .*\) is lost: ")
            self.assertLess(seconds, 3)

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_a_killed_rank_is_named_at_once_over_ucx(self):
        for what in ("stream", "idle"):
            heard, seconds = self.lose(what, lambda rank: rank.send_signal(signal.SIGKILL), PLAIT_TRANSPORT="ucx")
            self.assertRegex(heard, r"^peer_lost, culprit 1: .*rank 1 \(pid \d+ on .*\) is lost: ")
            self.assertLess(seconds, 3)

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_a_cut_cable_is_noticed_over_ucx(self):
        for what in ("stream", "idle"):
            # UCX itself would not notice it for minutes.
            self.assertTrue(any(self.cut(what, PLAIT_TRANSPORT="ucx") < 5 for _ in range(3)), what)

    def cut(self, what, **variables):
        """After how many seconds a cut cable is noticed."""
        heard, seconds = self.lose(what, lambda rank: self.hosts.cut_the_cable(), **variables)
        self.assertRegex(heard, r"^peer_lost, culprit 1: .*rank 1 \(pid \d+ on .*\) is lost: its host has not "
                                r"answered for \d+ ms")
        print(f"{what} {variables}: {seconds:.1f} s: {heard.strip()}", file=sys.stderr)
        ip("-n", self.hosts.names[1], "link", "set", "v0", "up")
        return seconds

    def test_a_cut_cable_is_noticed_within_two_seconds(self):
        for what in ("stream", "idle"):
            # A busy machine may be late: one of three must not.
            self.assertTrue(any(self.cut(what) < 2.1 for _ in range(3)), what)

    def test_a_cut_cable_is_noticed_as_late_as_was_asked_for(self):
        for what in ("stream", "idle"):
            seconds = self.cut(what, PLAIT_LOST_AFTER="5s")
            self.assertGreater(seconds, 3)
            self.assertLess(seconds, 15)

    def run_on_hosts(self, shares, *words, cwd=None, agents_input="", **variables):
        """plait run --hosts, from the first host, with an agent that enters the namespace of a host."""
        folder = self.contexts.enter_context(tempfile.TemporaryDirectory())
        agent = Path(folder, "agent")
        # What the agent starts is in another session, as with ssh, and only the agent is this run's child.
        agent.write_text('#!/bin/sh\ncase $1 in *1) name=%s ;; *) name=%s ;; esac\n'
                         'setsid --fork --wait ip netns exec $name sh -c "$2" %s\n' %
                         (*self.hosts.names, agents_input))
        agent.chmod(0o755)
        return subprocess.Popen(["ip", "netns", "exec", self.hosts.names[0], PLAIT, "run", "--hosts", shares, *words],
                                env={**BARE, **variables, "PLAIT_RSH": str(agent)}, cwd=cwd, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_plait_run_starts_ranks_on_several_hosts(self):
        run = self.run_on_hosts("10.77.0.1:2,10.77.0.2:1", "--", RANK_PROGRAM)
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(sorted(said.splitlines()), [
            f"rank {rank} of 3, started by plait run, over tcp: the sum is 6" for rank in range(3)])

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_ranks_know_a_secret_that_no_command_line_shows(self):
        words = ("sh", "-c", "cat /proc/[0-9]*/cmdline > all.$PLAIT_RANK 2>&-; tr '\\0' ' ' < all.$PLAIT_RANK; "
                 "echo; echo secret=$PLAIT_SECRET; exec " + RANK_PROGRAM)
        folder = self.contexts.enter_context(tempfile.TemporaryDirectory())
        for chosen in ({}, {"PLAIT_SECRET": "it is quite a secret"}):
            run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "--", *words, cwd=folder, **chosen)
            said = run.communicate(timeout=PATIENCE)[0]
            self.assertEqual(run.returncode, 0, said)
            secrets = re.findall(r"^secret=(.+)$", said, re.MULTILINE)
            self.assertEqual(len(secrets), 2, said)
            self.assertEqual(len(set(secrets)), 1)
            self.assertEqual(secrets[0], chosen.get("PLAIT_SECRET", secrets[0]))
            self.assertEqual(said.count(secrets[0]), 2, said)
            self.assertEqual(said.count("the sum is 3"), 2, said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_an_agent_that_passes_no_input_on_is_told_so(self):
        run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "--", RANK_PROGRAM, agents_input="</dev/null")
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertNotEqual(run.returncode, 0, said)
        self.assertIn("what PLAIT_RSH names must pass on standard input", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_a_rank_that_fails_on_another_host_ends_the_run(self):
        run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "--linger", "1s", "-p", "--", "sh", "-c",
                                "[ $PLAIT_RANK = 0 ] && exec sleep 100; echo \"it's me\"; exit 7")
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 7, said)
        self.assertIn("[1] it's me\n", said)
        self.assertIn("plait run: rank 1 exited with status 7", said)
        self.assertIn("plait run: host 10.77.0.2 exited with status 7; waiting up to 1 s for host 10.77.0.1", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_ctrl_c_ends_the_ranks_and_brings_their_last_words(self):
        run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "-p", "--", "sh", "-c",
                                "trap 'sleep 0.5; echo bye; exit 5' TERM; echo here; while :; do sleep 0.1; done")
        for _ in range(2):
            self.assertRegex(run.stdout.readline(), r"^\[[01]\] here$")
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("[0] bye\n", said)
        self.assertIn("[1] bye\n", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_no_rank_outlives_a_run_that_is_killed(self):
        mark = f"300.{os.getpid():07}"
        run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:2", "--grace", "1s", "--", "sleep", mark)
        deadline = time.monotonic() + PATIENCE

        def count():
            return sum(is_command(process, b"sleep", mark.encode()) for process in Path("/proc").glob("[0-9]*"))

        while count() < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(count(), 3)
        run.kill()
        run.communicate(timeout=PATIENCE)
        while count() > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(count(), 0)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_operators_have_equal_bits(self):
        self.verify("tcp")

    @unittest.skipUnless(PLAIT and HAS_UCX, "the ucx transport is not built")
    def test_operators_have_equal_bits_over_ucx(self):
        self.verify("ucx")

    def verify(self, transport):
        first, second = self.start(2, PLAIT, "verify", "--transport", transport, "--cases", "40")
        said = self.output_of(first)
        self.output_of(second)
        self.assertEqual((first.returncode, second.returncode), (0, 0), said)
        self.assertIn("40 passed", said)


if __name__ == "__main__":
    unittest.main()
