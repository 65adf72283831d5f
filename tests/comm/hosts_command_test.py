"""The plait command and traces with ranks on two hosts."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from hosts_case import BARE, HAS_UCX, PATIENCE, PLAIT, RANK_PROGRAM, HostsCase

CLOCK_PROGRAM = os.environ["PLAIT_CLOCK_PROGRAM"]
CASES = int(os.environ["PLAIT_CASES"])  # random problems for each placement of ranks


def is_command(process, *words):
    """True if a process runs this command; one that has ended does not."""
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[:len(words)] == list(words)
    except OSError:
        return False


class HostsCommandTest(HostsCase):
    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_plait_run_starts_ranks_on_several_hosts(self):
        run = self.run_on_hosts("10.77.0.1:2,10.77.0.2:1", "--", RANK_PROGRAM)
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(sorted(said.splitlines()), [
            f"rank {rank} of 3, started by plait run, over tcp: the sum is 6" for rank in range(3)])

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_sums_that_are_measured_travel_as_those_of_layers(self):
        size = ("--m", "64", "--n", "64", "--k", "64", "--repeat", "2", "--schedule", "serial")
        for op, words, wire in (("matmul-all-reduce", (), "bf16 (automatic between hosts)"),
                                ("matmul-all-reduce", ("--dtype", "f32"), "f32 (automatic between hosts)"),
                                ("matmul-all-reduce", ("--wire", "f32"), "f32"),
                                ("matmul-all-gather", (), "bf16")):
            run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "--", PLAIT, "bench", op, *size, *words)
            said = run.communicate(timeout=PATIENCE)[0]
            self.assertEqual(run.returncode, 0, said)
            self.assertIn(f" wire={wire}\n", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_ranks_meet_at_the_ports_that_are_allowed(self):
        run = self.run_on_hosts("10.77.0.1:2,10.77.0.2:1", "--", "sh", "-c",
                                "echo $PLAIT_RENDEZVOUS; exec " + RANK_PROGRAM,
                                PLAIT_PORTS="30001-30003")
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(len(re.findall("^10.77.0.1:3000[123]$", said, re.MULTILINE)), 3, said)
        self.assertEqual(said.count("the sum is 6"), 3, said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_all_ranks_name_the_rank_that_never_comes_and_its_host(self):
        """The ranks that came say it even if they end with 0, so that plait run doesn't end the others first."""
        for missing in (3, 0):
            run = self.run_on_hosts("10.77.0.1:2,10.77.0.2:2", "-p", "--", "sh", "-c",
                                    f"[ $PLAIT_RANK = {missing} ] && exec sleep 8; {RANK_PROGRAM}; exit 0",
                                    PLAIT_TIMEOUT="3s", PLAIT_RENDEZVOUS="10.77.0.1:29600")
            said = sorted(run.communicate(timeout=PATIENCE)[0].splitlines())
            expected = ("rank 3 of 4 (host 10.77.0.2) has not come" if missing == 3 else
                        "rank 0 of 4 (host 10.77.0.1) has not been met at 10.77.0.1:29600")
            self.assertEqual(len(said), 3, said)
            for rank, line in zip((0, 1, 2) if missing == 3 else (1, 2, 3), said):
                self.assertTrue(line.startswith(f"[{rank}] timeout: {expected} within 3 s"), said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_ranks_know_a_secret_that_no_command_line_shows(self):
        words = ("sh", "-c", "cat /proc/[0-9]*/cmdline > all.$PLAIT_RANK 2>&-; "
                 "echo secret=$PLAIT_SECRET; exec " + RANK_PROGRAM)
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
            for rank in (0, 1):
                lines = Path(folder, f"all.{rank}").read_bytes()
                self.assertIn(os.fsencode(PLAIT), lines)
                self.assertNotIn(secrets[0].encode(), lines)

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
        self.assertIn("plait run: the run on 10.77.0.2 exited with status 7; waiting up to 1 s for the run on "
                      "10.77.0.1 to end too", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_ctrl_c_ends_the_ranks_and_brings_their_last_words(self):
        run = self.run_on_hosts("10.77.0.1:1,10.77.0.2:1", "-p", "--", "sh", "-c",
                                "trap 'sleep 0.5; echo bye; exit 5' INT; echo here; while :; do sleep 0.1; done")
        for _ in range(2):
            self.assertRegex(run.stdout.readline(), r"^\[[01]\] here$")
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=PATIENCE)[0]
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("[0] bye\n", said)
        self.assertIn("[1] bye\n", said)
        self.assertEqual(said.count("plait run"), 1, said)

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
        chosen = {"PLAIT_INTERFACE": "v1", "PLAIT_SECRET": "it is quite a secret", "PLAIT_PLAN_CACHE": "none"}
        first, second = self.start(2, PLAIT, "info", "--meet", **chosen)
        said, link, figures = self.output_of(first).partition("Link ")
        self.assertTrue(link and "Gbit/s" in figures, figures)
        self.assertEqual(said, """\
This is     rank 0 of 2 on 2 hosts, by the variables of torch.distributed, over tcp
Secret      PLAIT_SECRET is set
Hosts       host0: rank 0
            host1: rank 1
Peers       rank 1 on host1: tcp: 10.78.0.1 (v1) to 10.78.0.2; no shared memory, because its host
            name or /etc/machine-id is another
""")
        self.assertIn("Peers       rank 0 on host0: tcp: 10.78.0.2 (v1) to 10.78.0.1; ", self.output_of(second))
        if HAS_UCX:
            for rank in self.start(2, PLAIT, "info", "--meet", PLAIT_TRANSPORT="ucx", **chosen):
                self.assertIn("over ucx\nSecret      PLAIT_SECRET is set\n", self.output_of(rank))
        alone = self.hosts.start(0, 1, PLAIT, "info", PLAIT_INTERFACE="v1", PLAIT_RENDEZVOUS="node1:29600")
        self.assertRegex(self.output_of(alone).replace("\n            ", " "),
                         r"Network +10\.78\.0\.1.* of v1 \(PLAIT_INTERFACE\); rank 0 listens at node1 port 29600; "
                         r"no secret is set")

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_busy_processors_leave_the_figures_of_a_link_as_they_are(self):
        self.hosts.limit("200mbit")
        folder = Path(self.contexts.enter_context(tempfile.TemporaryDirectory()))
        link, kept = "2 ranks on 2 hosts, tcp: 10.77.0.1 (v0) to 10.77.0.2", [8000.0, 0.0239]
        links = folder / "plans.links"
        links.write_text(f"plait links 1\n{link} | {kept[0]} | {kept[1]} | 0.4\n")
        for cpu in range(2):  # the ranks' own
            loop = subprocess.Popen(["taskset", "-c", str(cpu % os.cpu_count()), "sh", "-c", "while :; do :; done"])
            self.addCleanup(loop.wait)
            self.addCleanup(loop.kill)
        for _ in range(3):
            ranks = self.hosts.start_ranks([PLAIT, "info", "--meet"], pin=True, stdout=subprocess.PIPE, text=True,
                                           variables={"PLAIT_PLAN_CACHE": str(folder / "plans")})
            said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
            self.assertEqual([line.split(" | ")[0] for line in links.read_text().splitlines()[1:]], [link])
            latency, rate = (float(one) for one in links.read_text().split(" | ")[1:3])
            self.assertEqual(rate, kept[1])
            if not os.environ.get("PLAIT_IS_INSTRUMENTED"):  # whose own latency is many times as long
                self.assertEqual(latency, kept[0])

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_waiting_for_the_network_is_no_work(self):
        self.expect_that_waiting_is_no_work("tcp")

    @unittest.skipUnless(PLAIT and HAS_UCX, "the ucx transport is not built")
    def test_waiting_for_the_network_is_no_work_over_ucx(self):
        self.wait_for_addresses()
        self.expect_that_waiting_is_no_work("ucx")

    def expect_that_waiting_is_no_work(self, transport):
        self.hosts.limit("200mbit")
        words = ("bench", "matmul-all-reduce", "--m", "256", "--n", "2048", "--k", "256", "--schedule", "serial",
                 "--repeat", "3", "--json", "-")
        ranks = self.hosts.start_ranks([PLAIT, *words], stdout=subprocess.PIPE, text=True,
                                       variables={"PLAIT_TRANSPORT": transport})
        said = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
        found = json.loads(said[0])
        self.assertEqual(found["transport"], transport)
        # A megabyte each way, in bf16, takes 40 ms, less what each half of the collective may send in a burst.
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

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_layers_have_equal_bits(self):
        self.verify("tcp", 10, "--layers")

    def verify(self, transport, cases=CASES, *words):
        first, second = self.start(2, PLAIT, "verify", "--transport", transport, "--cases", str(cases), *words)
        said = self.output_of(first)
        self.output_of(second)
        self.assertEqual((first.returncode, second.returncode), (0, 0), said)
        self.assertIn(f"{cases} passed", said)

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_operators_have_equal_bits_on_two_hosts_of_two_ranks(self):
        ranks = self.start(4, PLAIT, "verify", "--transport", "tcp", "--cases", str(CASES))
        said = [self.output_of(rank) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * 4, said)
        self.assertIn(f"{CASES} passed", said[0])


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
