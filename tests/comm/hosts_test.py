"""How ranks on two hosts find each other, and what they say when one of them or the cable is lost."""

import os
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from hosts_case import BARE, HAS_UCX, PATIENCE, PLAIT, RANK_PROGRAM, HostsCase
from mpirun import hear_twice, kill_session

HOST_PROGRAM = os.environ["PLAIT_HOST_PROGRAM"]
MPIEXEC = os.environ.get("PLAIT_MPIEXEC")
TRIES = 5  # of which the best counts: a busy machine may be late in any one


class HostsTest(HostsCase):
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

    def test_interfaces_whose_networks_are_not_connected(self):
        self.hosts.connect("v1", "10.78.0")
        self.hosts.ip(1, "addr", "del", "10.78.0.2/24", "dev", "v1")
        self.hosts.ip(1, "addr", "add", "10.79.0.2/24", "dev", "v1")
        for rank in self.start(2, RANK_PROGRAM, PLAIT_INTERFACE="v1", PLAIT_TIMEOUT="2s"):
            self.assertRegex(self.output_of(rank), r"rank \d of 2 has started, and not connected to rank \d within "
                                                   r"2 s; rank 0 listens on host0 at port \d+ of 10\.78\.0\.1; "
                                                   r"(the last call, to 10\.78\.0\.1: Network is unreachable; )?"
                                                   r"check firewalls and PLAIT_INTERFACE")

    def test_a_bridge_that_has_the_same_address_on_both_hosts(self):
        """Each rank reaches only its own host by that address, so neither knows whether the other has died."""
        for host in range(2):
            self.hosts.ip(host, "link", "add", "br0", "type", "bridge")
            self.hosts.ip(host, "addr", "add", "172.30.0.1/24", "dev", "br0")
            self.hosts.ip(host, "link", "set", "br0", "up")
        for rank, process in enumerate(self.start(2, RANK_PROGRAM, PLAIT_INTERFACE="br0")):
            self.assertRegex(self.output_of(process),
                             rf"^timeout: rank {rank} can't connect to rank {1 - rank} \(pid \d+ on host{1 - rank}\), "
                             r"which said that it listens at port \d+ of 172\.30\.0\.1: connections there are refused; "
                             r"check PLAIT_INTERFACE")

    def test_a_rank_that_cannot_reach_rank_0_says_why(self):
        cases = {"localhost": r"(127\.0\.0\.1|::1): Connection refused",  # of the rank's own host
                 "10.77.0.1": r"10\.77\.0\.1: Connection refused",
                 "10.77.0.9": r"10\.77\.0\.9: (Connection timed out|No route to host)",
                 "10.99.0.1": r"10\.99\.0\.1: Network is unreachable"}
        ranks = [self.hosts.start(1, 2, RANK_PROGRAM, PLAIT_RENDEZVOUS=f"{host}:29600", PLAIT_TIMEOUT="2s")
                 for host in cases]
        for rank in ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
        for rank, (host, why) in zip(ranks, cases.items()):
            self.assertRegex(self.output_of(rank),
                             rf"^timeout: rank 0 of 2 has not been met at {host}:29600 within 2 s; the last call, to "
                             rf"{why}; check that rank 0 runs there and uses the transport tcp, ")

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
        """Return rank 0's error, and the seconds until it, when `how` happens to rank 1."""
        ranks = self.start(2, HOST_PROGRAM, what, **variables)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "ready\n")
        time.sleep(0.3)
        start = time.monotonic()
        how(ranks[1])
        heard = self.output_of(ranks[0])
        return heard, time.monotonic() - start

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

    def test_a_cut_cable_is_noticed_as_late_as_was_asked_for_and_not_by_the_kernel(self):
        """Kernels that give a host up after three seconds stand for ones that do so after 15 minutes."""
        for name in self.hosts.names:
            subprocess.run(["ip", "netns", "exec", name, "sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_retries2"],
                           check=True)
        for what in ("stream", "idle"):
            seconds = self.cut(what, PLAIT_LOST_AFTER="8s")
            self.assertGreater(seconds, 6)
            self.assertLess(seconds, 18)

    def lose_one_of_four(self, transport, what, how, culprit, **variables):
        """After how many seconds the last of those ranks that another one waits for has heard of it."""
        ranks = self.start(4, HOST_PROGRAM, what, PLAIT_TRANSPORT=transport, **variables)
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

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_a_rank_leaves_over_ucx_though_the_kernel_takes_no_more(self):
        """Small buffers are often full when the cable is cut."""
        for size in 3 * ("48k", "96k"):
            self.lose_one_of_four("ucx", "stream", lambda _: self.hosts.cut(1), r"\d", UCX_TCP_SNDBUF=size)
            self.hosts.mend(1)

    def refusals(self, *variables):
        """Return the errors of two ranks that have different variables."""
        self.wait_for_addresses()
        ranks = [self.hosts.start(rank, 2, RANK_PROGRAM, **variables[rank]) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.communicate)
            self.addCleanup(rank.kill)
        start = time.monotonic()
        said = [self.output_of(rank) for rank in ranks]
        self.assertLess(time.monotonic() - start, 30)  # the deadline is 60 s
        return said

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
            refusal = (f"mismatch: rank 1 uses the transport {transports[1]}, rank 0 {transports[0]}: "
                       "PLAIT_TRANSPORT must be the same for all ranks")
            # MPI and what it loads do not free all that they allocate. The deadline of the ranks is 60 s.
            heard = hear_twice(refusal, self.hosts.command(0, *words),
                               {**BARE, "PLAIT_RENDEZVOUS": rendezvous, "ASAN_OPTIONS": "detect_leaks=0"}, PATIENCE / 2)
            self.assertEqual(heard.count(f"{refusal}\n"), 2, heard)

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
        """Cut the cable between the ranks' hosts while each asks for the survivors; return their output.

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


if __name__ == "__main__":
    unittest.main()
