"""plait run: the environment of ranks, and their exit statuses."""

import json
import os
import shlex
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command import PATIENCE, CommandTest

PRINT_ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)))"
# The list contains the descriptor by which it is read, which is closed before printing.
PRINT_OPEN_FILES = """
import os
found = sorted(map(int, os.listdir("/proc/self/fd")))
print([fd for fd in found if os.path.exists(f"/proc/self/fd/{fd}")])
"""
PRINT_CPUS = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"


class RunTest(CommandTest):
    def environments(self, ranks):
        # --prefix keeps long lines of several ranks apart.
        result = self.plait("run", "-n", ranks, "-p", sys.executable, "-c", PRINT_ENVIRONMENT)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [json.loads(line.partition(" ")[2]) for line in sorted(result.stdout.splitlines())]

    def test_every_rank_is_told_its_place(self):
        found = self.environments(3)
        self.assertEqual([e["PLAIT_RANK"] for e in found], ["0", "1", "2"])
        self.assertEqual([e["PLAIT_LOCAL_RANK"] for e in found], ["0", "1", "2"])
        self.assertEqual({e["PLAIT_WORLD_SIZE"] for e in found}, {"3"})
        self.assertEqual({e["PLAIT_LOCAL_WORLD_SIZE"] for e in found}, {"3"})
        (job,) = {e["PLAIT_JOB"] for e in found}
        self.assertRegex(job, "^[0-9a-f]{32}$")
        self.assertNotEqual(self.environments(1)[0]["PLAIT_JOB"], job)

    def test_ranks_of_this_host_are_told_where_to_meet_over_tcp(self):
        self.assertNotIn("PLAIT_RENDEZVOUS", self.environments(1)[0])
        for transport in "tcp", "ucx":
            self.environment["PLAIT_TRANSPORT"] = transport
            (place,) = {e["PLAIT_RENDEZVOUS"] for e in self.environments(2)}
            self.assertRegex(place, r"^127\.0\.0\.1:\d{5}$")
        self.environment["PLAIT_RENDEZVOUS"] = "localhost:1234"
        self.assertEqual(self.environments(1)[0]["PLAIT_RENDEZVOUS"], "localhost:1234")

    def test_threads_that_the_user_wants_are_his(self):
        self.environment["OMP_NUM_THREADS"] = "5"
        self.assertEqual({e["OMP_NUM_THREADS"] for e in self.environments(2)}, {"5"})

    def cpus(self, ranks, *options):
        result = self.plait("run", "-n", ranks, "-p", *options, sys.executable, "-c", PRINT_CPUS)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [line.partition(" ")[2] for line in sorted(result.stdout.splitlines())]

    def test_ranks_are_bound_to_cores_of_their_own(self):
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) < 2:
            self.skipTest("one processor only")
        result = self.cpus(2, "--bind", "core")
        self.assertNotEqual(*result)
        for line in result:
            self.assertLessEqual(set(json.loads(line.rpartition(" ")[0])), set(mine))

    def test_binding_stays_within_the_mask_that_was_inherited(self):
        last = max(os.sched_getaffinity(0))
        only = {"preexec_fn": lambda: os.sched_setaffinity(0, {last})}
        for bind in ("core", "numa", "none"):
            words = ["--bind", bind, sys.executable, "-c", PRINT_CPUS]
            result = self.plait("run", "-n", 1, *words, **only)
            self.assertEqual(result.stdout, f"[{last}] 1\n", bind)

    def test_more_ranks_than_cores_share_them(self):
        mine = sorted(os.sched_getaffinity(0))
        result = self.cpus(len(mine) + 1)
        self.assertEqual(result, [f"{mine} 1"] * (len(mine) + 1))

    def test_verbose_says_where_each_rank_was_put(self):
        result = self.plait("run", "-n", 2, "-v", "true")
        for rank, line in enumerate(result.stderr.splitlines()):
            place = rf"^plait run: rank {rank} is process \d+, .*, OMP_NUM_THREADS=\d+$"
            self.assertRegex(line, place)

    def test_no_descriptor_of_ours_reaches_a_rank_and_no_other_is_lost(self):
        ends = os.pipe()
        self.addCleanup(os.close, ends[0])
        self.addCleanup(os.close, ends[1])
        for options in ([], ["-p"]):
            words = [*options, sys.executable, "-c", PRINT_OPEN_FILES]
            result = self.plait("run", "-n", 2, *words, pass_fds=[ends[0]])
            self.assertEqual(result.stdout.count(f"[0, 1, 2, {ends[0]}]"), 2, result.stdout)

    def test_rank_0_alone_reads_standard_input(self):
        result = self.plait("run", "-n", 3, "-p", "cat", stdin=None, input="one\ntwo\n")
        self.assertEqual(result.stdout, "[0] one\n[0] two\n")

    def test_it_can_be_started_without_standard_files(self):
        def close_all():
            for fd in range(3):
                os.close(fd)

        with tempfile.NamedTemporaryFile("r") as file:
            code = f"open({file.name!r}, 'a').write('here')"
            result = subprocess.run(
                [os.environ["PLAIT_COMMAND"], "run", "-n", "2", "-p", sys.executable, "-c", code],
                preexec_fn=close_all, close_fds=False, timeout=PATIENCE,
            )
            self.assertEqual((result.returncode, file.read()), (0, "herehere"))

    def test_a_command_needs_no_dashes_before_it(self):
        result = self.plait("run", "-n", 1, "printf", "[%s]", "-n", "4", "--", "--help")
        self.assertEqual(result.stdout, "[-n][4][--][--help]")

    def test_a_host_that_is_named_twice(self):
        for hosts, name in ("a:1,b:1,a:1", "a"), ("me@a,[fd00::1]:2,a:2", "a"), ("b,[fd00::1],[fd00::1]", "[fd00::1]"):
            self.assert_says(
                self.plait("run", "--hosts", hosts, "true"),
                2,
                f"plait run: --hosts {hosts} names {name} twice: give it all of its ranks in one place",
            )

    def test_a_command_that_is_not_there(self):
        self.assert_says(
            self.plait("run", "-n", 2, "no_such_command"),
            127,
            "plait run: command not found: no_such_command",
        )
        self.assert_says(
            self.plait("run", "-n", 2, "./no_such_command"),
            127,
            "plait run: cannot run ./no_such_command: No such file or directory",
        )

    def test_a_command_whose_interpreter_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "plait_test_script"
            script.write_text("#!/no/such/interpreter\n")
            script.chmod(stat.S_IRWXU)
            self.assert_says(
                self.plait("run", "-n", 2, script),
                126,
                f"plait run: cannot run {script} (is its interpreter missing?): "
                "No such file or directory",
            )

    def test_the_status_of_the_first_rank_that_failed(self):
        code = "test $PLAIT_RANK = 1 && exit 7; sleep 60; exit 8"
        self.assert_says(
            self.plait("run", "-n", 2, "--linger", "100ms", "sh", "-c", code),
            7,
            "plait run: rank 1 exited with status 7; waiting up to 100 ms for rank 0 to end too",
            "plait run: ending rank 0, 100 ms after rank 1 failed",
        )

    def after_rank_0(self, status):
        """Code of two ranks: rank 0 exits with this status, and rank 1 goes on when plait run has seen that."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = shlex.quote(f"{folder.name}/pid")
        return (f"test $PLAIT_RANK = 0 && {{ echo $$ > {file}; exit {status}; }}; "
                f"until test -s {file}; do sleep 0.01; done; "
                f"while kill -0 $(cat {file}) 2>&-; do sleep 0.01; done; ")

    def test_the_others_may_notice_a_failure_and_report_it(self):
        result = self.plait("run", "-n", 2, "sh", "-c", self.after_rank_0(7) + "echo noticed; exit 4")
        self.assertEqual(result.stdout, "noticed\n")
        self.assert_says(
            result,
            7,
            "plait run: rank 0 exited with status 7; waiting up to 10 s for rank 1 to end too",
        )

    def test_who_has_lost_a_peer_was_not_the_first_to_fail(self):
        peer_lost = 3
        self.assert_says(
            self.plait("run", "-n", 2, "sh", "-c", self.after_rank_0(peer_lost) + "exit 7"),
            7,
            "plait run: rank 0 exited with status 3; waiting up to 10 s for rank 1 to end too",
            "plait run: rank 1 exited with status 7",
        )

    def test_a_rank_that_a_signal_killed(self):
        result = self.plait("run", "-n", 1, "sh", "-c", "kill -SEGV $$")
        self.assertEqual(result.returncode, 128 + 11)
        self.assertTrue(result.stderr.startswith("plait run: rank 0 was killed by SIGSEGV"))

    def test_a_rank_that_will_not_end_is_killed(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = shlex.quote(f"{folder.name}/is_set")  # rank 1 fails when rank 0 ignores the signal
        code = (f"test $PLAIT_RANK = 1 && {{ until test -e {file}; do sleep 0.01; done; exit 1; }}; "
                f"trap '' TERM; touch {file}; while true; do sleep 0.05; done")
        self.assert_says(
            self.plait("run", "-n", 2, "--linger", "100ms", "--grace", "200ms", "sh", "-c", code),
            1,
            "plait run: rank 1 exited with status 1; waiting up to 100 ms for rank 0 to end too",
            "plait run: ending rank 0, 100 ms after rank 1 failed",
            "plait run: killing rank 0, which did not end after SIGTERM",
        )
        self.assert_nothing_left()

    def test_a_time_limit(self):
        self.assert_says(
            self.plait("run", "-n", 2, "--timeout", "200ms", "sleep", "60"),
            124,
            "plait run: ending ranks 0 and 1 at the time limit of 200 ms",
        )

    def test_what_ranks_leave_in_the_background_is_ended(self):
        code = "sleep 60 & setsid sleep 60 & exit 0"
        result = self.plait("run", "-n", 2, "sh", "-c", code)
        self.assertEqual(result.returncode, 0)
        sentence = r"^plait run: ending \d processes that the ranks left behind\n$"
        self.assertRegex(result.stderr, sentence)
        self.assertEqual(self.marked(), [])

    def test_orphans_are_reaped_while_ranks_run(self):
        # The orphan of a rank becomes a child of plait run, which must reap it.
        code = ("(sh -c 'echo $$' &); sleep 0.3; for i in $(seq 200); do "
                "ps -o stat= --ppid $PPID | grep -q Z || exit 0; sleep 0.1; done; echo a zombie is left")
        result = self.plait("run", "-n", 1, "sh", "-c", code)
        self.assertNotIn("zombie", result.stdout)

    def test_many_ranks(self):
        result = self.plait("run", "-n", 200, "-p", "sh", "-c", "echo $PLAIT_RANK")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = sorted(f"[{rank}] {rank}" for rank in range(200))
        self.assertEqual(sorted(result.stdout.splitlines()), lines)


if __name__ == "__main__":
    unittest.main()
