"""Ranks on two hosts, which are network namespaces here (tools/netlab.py), joined by a cable that can be cut.

Namespaces need root, and a system that allows them. Elsewhere the tests are skips.
"""

import contextlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import netlab  # noqa: E402, in another folder

RANK_PROGRAM = os.environ["PLAIT_RANK_PROGRAM"]
HOST_PROGRAM = os.environ["PLAIT_HOST_PROGRAM"]
CLOCK_PROGRAM = os.environ["PLAIT_CLOCK_PROGRAM"]
PLAIT = os.environ.get("PLAIT_COMMAND")
HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
MPIEXEC = os.environ.get("PLAIT_MPIEXEC")
CASES = int(os.environ["PLAIT_CASES"])  # random problems for each placement of ranks
PATIENCE = 60
TRIES = 5  # of which the best counts: a busy machine may be late in any one
BARE = netlab.bare_environment()


def kill_session(process):
    """Kills a process that leads a session, and all processes in it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_command(process, *words):
    """Whether a process runs this command; one that has ended does not."""
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[:len(words)] == list(words)
    except OSError:
        return False


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
class HostsTest(unittest.TestCase):
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
        self.hosts.connect("v1", "10.78.0")
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
            self.assertLess(seconds, 20)

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_a_killed_rank_is_named_at_once_over_ucx(self):
        for what in ("stream", "idle"):
            heard, seconds = self.lose(what, lambda rank: rank.send_signal(signal.SIGKILL), PLAIT_TRANSPORT="ucx")
            self.assertRegex(heard, r"^peer_lost, culprit 1: .*rank 1 \(pid \d+ on .*\) is lost: ")
            self.assertLess(seconds, 20)

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_a_cut_cable_is_noticed_over_ucx(self):
        for what in ("stream", "idle"):
            # UCX itself would not notice it for minutes.
            self.assertTrue(any(self.cut(what, PLAIT_TRANSPORT="ucx") < 5 for _ in range(TRIES)), what)

    def cut(self, what, **variables):
        """After how many seconds a cut cable is noticed."""
        heard, seconds = self.lose(what, lambda rank: self.hosts.cut(1), **variables)
        self.assertRegex(heard, r"^peer_lost, culprit 1: .*rank 1 \(pid \d+ on .*\) is lost: its host has not "
                                r"answered for \d+ ms")
        print(f"{what} {variables}: {seconds:.1f} s: {heard.strip()}", file=sys.stderr)
        self.hosts.mend(1)
        return seconds

    def test_a_cut_cable_is_noticed_within_two_seconds(self):
        for what in ("stream", "idle"):
            self.assertTrue(any(self.cut(what) < 2.1 for _ in range(TRIES)), what)

    def test_a_cut_cable_is_noticed_as_late_as_was_asked_for(self):
        for what in ("stream", "idle"):
            seconds = self.cut(what, PLAIT_LOST_AFTER="5s")
            self.assertGreater(seconds, 3)
            self.assertLess(seconds, 15)

    def test_a_cut_cable_is_noticed_by_plait_and_not_by_the_kernel(self):
        """Kernels that give a host up after three seconds stand for ones that do so after 15 minutes."""
        for name in self.hosts.names:
            subprocess.run(["ip", "netns", "exec", name, "sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_retries2"],
                           check=True)
        for what in ("stream", "idle"):
            self.assertGreater(self.cut(what, PLAIT_LOST_AFTER="8s"), 6)

    def lose_one_of_four(self, transport, what, how, culprit):
        """After how many seconds the last of those ranks that another one waits for has heard of it."""
        ranks = self.start(4, HOST_PROGRAM, what, PLAIT_TRANSPORT=transport)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        time.sleep(0.3)
        start = time.monotonic()
        how(ranks[3])
        for rank in ranks[:3]:
            self.assertRegex(self.output_of(rank),
                             rf"^peer_lost, culprit {culprit}: .*rank {culprit} \(pid \d+ on .*\) is lost: ")
        seconds = time.monotonic() - start
        print(f"{transport}, {what}: {seconds:.1f} s", file=sys.stderr)
        ranks[3].kill()
        ranks[3].wait()
        return seconds

    def expect_losses_within_two_seconds(self, transport):
        def cut(_rank):
            self.hosts.cut(1)

        for what in ("stream", "idle"):
            self.assertTrue(any(self.lose_one_of_four(transport, what, lambda rank: rank.kill(), 3) < 2
                                for _ in range(TRIES)), f"{what}: a killed rank")
            for _ in range(TRIES):
                seconds = self.lose_one_of_four(transport, what, cut, r"\d")
                self.hosts.mend(1)
                if seconds < 2.1:
                    break
            else:
                self.fail(f"{what}: a lost host")

    def test_all_ranks_hear_of_a_loss_within_two_seconds(self):
        self.expect_losses_within_two_seconds("tcp")

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_all_ranks_hear_of_a_loss_within_two_seconds_over_ucx(self):
        self.expect_losses_within_two_seconds("ucx")

    def refusals(self, *variables):
        """What two ranks say that have different variables."""
        self.wait_for_addresses()
        ranks = [self.hosts.start(rank, 2, RANK_PROGRAM, **variables[rank]) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
        start = time.monotonic()
        said = [self.output_of(rank) for rank in ranks]
        self.assertLess(time.monotonic() - start, 30)  # the deadline is 60 s
        return said

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_hosts_whose_ranks_use_different_transports(self):
        for transports in ("tcp", "ucx"), ("ucx", "tcp"):
            said = self.refusals(*({"PLAIT_TRANSPORT": transport} for transport in transports))
            self.assertEqual(said, 2 * [f"mismatch: rank 1 uses the transport {transports[1]}, rank 0 "
                                        f"{transports[0]}: PLAIT_TRANSPORT must be the same for all ranks\n"])

    @unittest.skipUnless(MPIEXEC, "the mpi transport is not built")
    def test_hosts_whose_ranks_use_mpi_and_tcp(self):
        """MPI starts both ranks, but only one uses it, as where a host's own environment says so."""
        for transports in ("mpi", "tcp"), ("tcp", "mpi"):
            away = transports.index("tcp")  # on the second host, where MPI would not work
            line = " ".join([
                f'[ $OMPI_COMM_WORLD_RANK = {away} ] &&',
                f'PLAIT_TRANSPORT=tcp exec {shlex.join(self.hosts.command(1, RANK_PROGRAM))};',
                f'PLAIT_TRANSPORT=mpi exec {RANK_PROGRAM}'])
            words = (MPIEXEC, "-np", "2", "--oversubscribe", "--allow-run-as-root", "sh", "-c", line)
            rendezvous = f"{self.hosts.address(1 if away == 0 else 0)}:29600"
            # MPI and what it loads do not free all that they allocate.
            run = subprocess.Popen(self.hosts.command(0, *words), stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env={**BARE, "PLAIT_RENDEZVOUS": rendezvous, "ASAN_OPTIONS": "detect_leaks=0"},
                                   start_new_session=True)
            self.addCleanup(run.stdout.close)
            self.addCleanup(run.wait)
            self.addCleanup(kill_session, run)
            end = threading.Timer(PATIENCE / 2, kill_session, (run,))  # the deadline of the ranks is 60 s
            end.start()
            self.addCleanup(end.cancel)
            # It may itself hang if a process ends while MPI starts, so its end is not waited for.
            heard = []
            refusal = (f"mismatch: rank 1 uses the transport {transports[1]}, rank 0 {transports[0]}: "
                       "PLAIT_TRANSPORT must be the same for all ranks\n")
            while heard.count(refusal) < 2 and (line := run.stdout.readline()):
                heard.append(line)
            self.assertEqual(heard.count(refusal), 2, heard)

    def behind_a_silent_name_server(self, *words):
        """The words with which a command runs on a host whose name server keeps each question for a minute."""
        for host in range(2):
            self.hosts.ip(host, "neigh", "replace", "10.77.0.77", "lladdr", "02:00:00:00:00:77", "nud", "permanent",
                          "dev", "v0")
        file = Path(self.contexts.enter_context(tempfile.TemporaryDirectory()), "resolv.conf")
        file.write_text("nameserver 10.77.0.77\noptions timeout:20 attempts:3\n")
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(file), *words]

    def test_a_silent_name_server_keeps_no_rank_beyond_its_deadline(self):
        words = self.behind_a_silent_name_server(RANK_PROGRAM)
        start = time.monotonic()
        _, second = self.start(2, *words, PLAIT_RENDEZVOUS="node1.plait.test:29600", PLAIT_TIMEOUT="1s")
        self.assertEqual(self.output_of(second), 'invalid_argument: rank 1 cannot find host "node1.plait.test", where '
                                                 "rank 0 is to be met: no name server has answered\n")
        self.assertLess(time.monotonic() - start, 30)

    @unittest.skipUnless(MPIEXEC, "the mpi transport is not built")
    def test_a_silent_name_server_keeps_no_rank_from_connecting_over_mpi(self):
        program = shlex.join(self.behind_a_silent_name_server(RANK_PROGRAM))
        line = f"[ $OMPI_COMM_WORLD_RANK = 0 ] && sleep 2; exec {program}"
        run = subprocess.Popen(
            self.hosts.command(0, MPIEXEC, "-np", "2", "--oversubscribe", "--allow-run-as-root", "sh", "-c", line),
            env={**BARE, "PLAIT_TRANSPORT": "mpi", "PLAIT_RENDEZVOUS": "node1.plait.test:29600",
                 "ASAN_OPTIONS": "detect_leaks=0"},
            stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        self.addCleanup(run.wait)
        self.addCleanup(kill_session, run)
        start = time.monotonic()
        said = self.output_of(run)
        self.assertEqual(said.count("the sum is 3"), 2, said)
        self.assertLess(time.monotonic() - start, 40)

    @unittest.skipUnless(Path("/proc/net/if_inet6").exists(), "the system has no IPv6")
    def test_interfaces_of_different_families(self):
        self.hosts.connect("v1", "10.78.0")
        self.hosts.ip(1, "addr", "add", "fd78::2/64", "dev", "v1", "nodad")
        self.hosts.ip(1, "addr", "del", "10.78.0.2/24", "dev", "v1")
        said = self.refusals({"PLAIT_INTERFACE": "v0"}, {"PLAIT_INTERFACE": "v1"})
        self.assertEqual(said, 2 * ["mismatch: rank 0 has only IPv4 addresses (PLAIT_INTERFACE=v0), rank 1 only IPv6 "
                                    "(PLAIT_INTERFACE=v1): ranks connect by addresses of the same family\n"])

    def part(self, hosts, mend_at_once=False):
        """What the ranks say when the cable between their hosts is cut and each asks for the survivors.

        `hosts` says for each rank on which host it is. `mend_at_once`: the cable works again when the first rank has
        noticed, while others may not have.
        """
        world = len(hosts)
        self.ranks = []
        for rank, host in enumerate(hosts):
            # LOCAL_WORLD_SIZE=1, so that no rank takes all of them for ranks of one host.
            place = self.hosts.place(rank, world, host, hosts[:rank].count(host), 1)
            words = self.hosts.command(host, HOST_PROGRAM, "go_on")
            variables = {"PLAIT_TIMEOUT": "40s", "MASTER_ADDR": self.hosts.address(hosts[0])}
            self.ranks.append(subprocess.Popen(words, env={**place, **variables}, stdin=subprocess.DEVNULL,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            self.addCleanup(self.ranks[-1].communicate)
            self.addCleanup(self.ranks[-1].kill)
        # Lines are read without a deadline.
        end = threading.Timer(2 * PATIENCE, lambda: [rank.kill() for rank in self.ranks])
        end.start()
        self.addCleanup(end.cancel)
        for rank in self.ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        time.sleep(0.3)
        self.hosts.cut(1)
        if mend_at_once:
            select.select([rank.stdout for rank in self.ranks], [], [], PATIENCE)
            self.hosts.mend(1)
        for rank in self.ranks:
            self.assertEqual(rank.stdout.readline(), "peer_lost\n")
        return [rank.stdout.readline() for rank in self.ranks]

    def expect_that_one_part_goes_on(self, heard, going_on, why):
        self.assertEqual(len(heard), len(self.ranks))
        lost = " ".join(str(rank) for rank in range(len(heard)) if rank not in going_on)
        for rank, said in enumerate(heard):
            if rank in going_on:
                self.assertEqual(said, f"rank {going_on.index(rank)} of {len(going_on)} goes on, "
                                       f"sum {len(going_on)}, without {lost}\n", heard)
            else:
                # Several ranks go on elsewhere, so no single one is to blame.
                self.assertRegex(said, rf"^peer_lost, culprit -1: survivors: .* can't go on: "
                                       rf"ranks {going_on[0]} and {going_on[1]} may be alive beyond a broken "
                                       rf"connection, and (have|are) {why}\n$", heard)

    def test_of_two_equal_halves_the_one_with_the_lowest_rank_goes_on(self):
        for ranks, going_on in ((0, 1, 0, 1), [0, 2]), ((0, 0, 1, 1), [0, 1]), ((1, 0, 0, 1), [0, 3]):
            self.expect_that_one_part_goes_on(self.part(ranks), going_on, "the lowest rank of two halves")
            self.hosts.mend(1)

    def test_a_cable_that_is_mended_while_the_halves_decide(self):
        for ranks in ((0, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1)):
            start = time.monotonic()
            heard = self.part(ranks, mend_at_once=True)
            # The deadline is 40 s. Who has noticed the cut is left to chance, but all that go on are one group.
            self.assertLess(time.monotonic() - start, 30, heard)
            going_on = [rank for rank, said in enumerate(heard) if "goes on" in said]
            self.assertTrue(going_on, heard)
            for number, rank in enumerate(going_on):
                self.assertTrue(heard[rank].startswith(
                    f"rank {number} of {len(going_on)} goes on, sum {len(going_on)}, "), heard)
            for rank in set(range(len(heard))) - set(going_on):
                self.assertRegex(heard[rank], r"^peer_lost, culprit -1: survivors: ", heard)

    def test_the_larger_part_goes_on_without_rank_0(self):
        self.expect_that_one_part_goes_on(self.part((0, 1, 1)), [1, 2], "more")

    def run_on_hosts(self, shares, *words, cwd=None, agents_input="", **variables):
        """plait run --hosts, from the first host, with an agent that enters the namespace of a host."""
        folder = self.contexts.enter_context(tempfile.TemporaryDirectory())
        agent = self.hosts.write_agent(Path(folder, "agent"), agents_input)
        return subprocess.Popen(self.hosts.command(0, PLAIT, "run", "--hosts", shares, *words),
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

    def test_traces_are_on_one_clock(self):
        ahead = 1000  # seconds; exactly, because the second host's clock is the first one's with an offset
        file = Path(self.contexts.enter_context(tempfile.TemporaryDirectory()), "timeline.json")
        ranks = self.hosts.start_ranks([CLOCK_PROGRAM, str(file)], clock_ahead=ahead, stdout=subprocess.PIPE, text=True)
        said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        moments = dict(map(int, line.split()) for line in said)  # by rank, on the rank's own clock
        self.assertGreater(moments[1] - moments[0], (ahead - PATIENCE) * 10**9, "the clocks don't differ")
        timeline = json.loads(file.read_text())
        origin = int(timeline["otherData"]["origin_ns"])
        uncertainty = {int(rank): value for rank, value in
                       timeline["otherData"]["clock_uncertainty_ns"].items()}
        self.assertEqual(uncertainty[0], 0)
        self.assertLess(uncertainty[1], 10**9)
        times = {(event["name"], event["pid"], event.get("args", {}).get("chunk")): round(event["ts"] * 1000) + origin
                 for event in timeline["traceEvents"] if event["ph"] in "bi"}
        self.assertLessEqual(abs(times["moment", 1, None] - (moments[1] - ahead * 10**9)), uncertainty[1] + 1)
        self.assertLessEqual(abs(times["moment", 0, None] - moments[0]), 1)
        for chunk in range(100):
            for rank in (0, 1):
                self.assertGreaterEqual(times["arrived", 1 - rank, chunk],
                                        times["posted", rank, chunk] - uncertainty[1] - 1000)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_a_timeline_says_how_well_its_clocks_agree(self):
        folder = Path(self.contexts.enter_context(tempfile.TemporaryDirectory()))
        ranks = self.hosts.start_ranks(
            [PLAIT, "trace", "matmul-all-reduce", "--m", "64", "--n", "256", "--k", "256", "--repeat", "1",
             "--trace", str(folder / "timeline.json"), "--svg", str(folder / "timeline.svg")],
            clock_ahead=1000, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = [self.output_of(rank) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        timeline = json.loads((folder / "timeline.json").read_text())
        self.assertGreater(timeline["otherData"]["clock_uncertainty_ns"]["1"], 0)
        self.assertIn("clocks agree to within", (folder / "timeline.svg").read_text())
        last = max(event["ts"] for event in timeline["traceEvents"] if "ts" in event)
        self.assertLess(last, 1000e6, "the ranks' records are far apart")

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_info_says_how_ranks_reach_each_other(self):
        self.hosts.connect("v1", "10.78.0")
        chosen = {"PLAIT_INTERFACE": "v1", "PLAIT_SECRET": "it is quite a secret"}
        first, second = self.start(2, PLAIT, "info", "--meet", **chosen)
        self.assertEqual(self.output_of(first), """\
This is     rank 0 of 2 on 2 hosts, started by torch.distributed, over tcp
Secret      PLAIT_SECRET is set
Hosts       host0: rank 0
            host1: rank 1
Peers       rank 1 on host1: tcp: 10.78.0.1 to 10.78.0.2
""")
        self.assertIn("Peers       rank 0 on host0: tcp: 10.78.0.2 to 10.78.0.1\n", self.output_of(second))
        alone = self.hosts.start(0, 1, PLAIT, "info", PLAIT_INTERFACE="v1", PLAIT_RENDEZVOUS="node1:29600")
        self.assertRegex(self.output_of(alone).replace("\n            ", " "),
                         r"Network +10\.78\.0\.1.* of v1 \(PLAIT_INTERFACE\); rank 0 listens at node1 port 29600; "
                         r"no secret is set")

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_waiting_for_the_network_is_no_work(self):
        self.expect_that_waiting_is_no_work("tcp")

    @unittest.skipUnless(PLAIT and HAS_UCX, "the ucx transport is not built")
    def test_waiting_for_the_network_is_no_work_over_ucx(self):
        self.wait_for_addresses()
        self.expect_that_waiting_is_no_work("ucx")

    def expect_that_waiting_is_no_work(self, transport):
        self.hosts.limit("200mbit")
        words = ("bench", "matmul-all-reduce", "--m", "256", "--n", "1024", "--k", "256", "--schedule", "serial",
                 "--repeat", "3", "--json", "-")
        ranks = self.hosts.start_ranks([PLAIT, *words], stdout=subprocess.PIPE, text=True,
                                       variables={"PLAIT_TRANSPORT": transport})
        said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
        found = json.loads(said[0])
        self.assertEqual(found["transport"], transport)
        # A megabyte each way takes 40 ms, less what each half of the collective may send in a burst.
        self.assertGreater(found["t_comm_ms"], 15)
        self.assertGreater(found["t_comm_cpu_ms"], 0.1)
        self.assertLess(found["t_comm_cpu_ms"], found["t_comm_ms"] / 2)
        self.assertAlmostEqual(found["bound_ms"], max(found["t_gemm_ms"] + found["t_comm_cpu_ms"], found["t_comm_ms"]))

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_operators_have_equal_bits(self):
        self.verify("tcp")

    @unittest.skipUnless(PLAIT and HAS_UCX, "the ucx transport is not built")
    def test_operators_have_equal_bits_over_ucx(self):
        self.verify("ucx")

    def verify(self, transport):
        first, second = self.start(2, PLAIT, "verify", "--transport", transport, "--cases", str(CASES))
        said = self.output_of(first)
        self.output_of(second)
        self.assertEqual((first.returncode, second.returncode), (0, 0), said)
        self.assertIn(f"{CASES} passed", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_operators_have_equal_bits_on_two_hosts_of_two_ranks(self):
        ranks = self.start(4, PLAIT, "verify", "--transport", "tcp", "--cases", str(CASES))
        said = [self.output_of(rank) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * 4, said)
        self.assertIn(f"{CASES} passed", said[0])

    def shared_regions(self, rank):
        maps = Path(f"/proc/{rank.pid}/maps").read_text()
        return maps.count("memfd:plait")

    def test_ranks_of_one_host_share_memory(self):
        ranks = self.start(4, HOST_PROGRAM, "idle")
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        for rank in ranks:
            self.assertGreater(self.shared_regions(rank), 2)
        ranks[2].kill()
        for rank in ranks[:2]:  # the last one only waits to be killed
            self.assertRegex(self.output_of(rank), r"^peer_lost, culprit 2: .*rank 2 \(pid \d+ on .*\) is lost: ")

    def test_ranks_of_two_containers_of_one_host_use_tcp(self):
        """Rank 2 is on the host of rank 0, and has process numbers of its own."""
        contained = ["unshare", "--pid", "--fork", "--kill-child"]
        self.ranks = [self.hosts.start(rank, 3, *(contained if rank == 2 else []), HOST_PROGRAM, "stream")
                      for rank in range(3)]
        for rank in self.ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
            self.assertEqual(rank.stdout.readline(), "ready\n")
        self.assertEqual(self.shared_regions(self.ranks[0]), 0)


class SimulatedHostsTest(unittest.TestCase):
    """Ranks of one machine that say different names of their hosts. Operators add up the sums of a host's ranks."""

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_operators_have_equal_bits(self):
        cases = CASES * 3 // 2
        for share in (2, 1, 3):
            with socket.socket() as kept:
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind(("127.0.0.1", 0))
                line = (f"export PLAIT_HOST=host$((PLAIT_RANK / {share})) "
                        f"PLAIT_RENDEZVOUS=127.0.0.1:{kept.getsockname()[1]}; "
                        f'exec "{PLAIT}" verify --transport tcp --cases {cases}')
                run = subprocess.run([PLAIT, "run", "-n", "4", "--", "sh", "-c", line], env=BARE, check=False,
                                     stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * PATIENCE)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertIn(f"{cases} passed", run.stdout)


if __name__ == "__main__":
    unittest.main()
