"""Failures between ranks that mpirun has started: the named rank, the time, and the end of all."""

import os
import re
import subprocess
import tempfile
import threading
import unittest

MPIEXEC = os.environ["PLAIT_MPIEXEC"]
HYDRA = os.environ.get("PLAIT_HYDRA")  # MPICH's mpiexec, if there is a plugin for MPICH
PROGRAM = os.environ["PLAIT_MPI_PROGRAM"]
PATIENCE = 180  # seconds after which a rank is taken to hang
# Milliseconds within which a death must be noticed: a third of the deadline. It takes less than two seconds unless
# other programs keep the cores.
NOTICED = 20_000

BTLS = {"vader": ["--mca", "btl", "vader,self"],
        "tcp": ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]}

# mpirun itself must not end the others where one has died: that is left to them.
ALWAYS = ["--oversubscribe", "--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "orte_enable_recovery", "1"]


class MpiTest(unittest.TestCase):
    def run_scene(self, scene, ranks, btl="vader", until=""):
        """Return the ranks' output, by rank: each a list of (sentence, milliseconds); and the rest.

        They are ended where rank 0 has said `until`.
        """
        said = {}
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [MPIEXEC, "-n", str(ranks), *ALWAYS, *BTLS[btl], PROGRAM, scene], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            hangs = threading.Timer(PATIENCE, process.terminate)
            hangs.start()
            for line in process.stdout:
                rank, sentence, taken = re.fullmatch(r"rank (\d) (.*) (\d+)\n", line).groups()
                said.setdefault(int(rank), []).append((sentence, int(taken)))
                if until and (rank, sentence) == ("0", until):
                    process.terminate()
                    break
            try:
                process.wait(PATIENCE / 6)
            except subprocess.TimeoutExpired:
                process.kill()  # mpirun that is told to end may wait for ever, after its ranks have ended
            hangs.cancel()
            errors.seek(0)
            return said, errors.read()

    def expect_death_of_1_noticed(self, scene, btl, pattern):
        said, err = self.run_scene(scene, 3, btl)
        self.assertEqual(sorted(said), [0, 2], err)
        for rank, [(sentence, taken)] in said.items():
            self.assertRegex(sentence, rf"^peer_lost: {pattern}.*rank 1 \(pid \d+ on \S+\) is lost: ")
            self.assertLess(taken, NOTICED, rank)

    def test_a_rank_that_is_killed_is_named_by_the_others(self):
        for btl in BTLS:
            with self.subTest(btl):
                self.expect_death_of_1_noticed("killed_in_barrier", btl, "barrier: rank [02] waits")

    def test_a_rank_that_is_killed_in_an_operator_is_named_by_the_others(self):
        """Over sockets, Open MPI may end ranks that are just sending to the one that dies."""
        self.expect_death_of_1_noticed("killed_in_operator", "vader", "matmul_all_reduce: rank [02] ")

    def test_nothing_is_sent_to_a_rank_that_has_died(self):
        """Over sockets, Open MPI would end the sender or keep it in its next call for ever."""
        for btl in BTLS:
            for _ in range(3):
                with self.subTest(btl):
                    self.expect_death_of_1_noticed("post_to_a_dead_rank", btl, "outbox: rank [02] waits")

    def test_leaving_a_dead_rank_takes_no_deadline(self):
        for btl in BTLS:
            with self.subTest(btl):
                said, err = self.run_scene("leave_a_dead_rank", 2, btl)
                [(sentence, taken)] = said[0]
                self.assertEqual(sentence, "has left")
                self.assertLess(taken, NOTICED)
                self.assertLessEqual(err.count("plait: "), 1, err)

    def test_leaving_a_rank_that_is_stuck_takes_one_deadline_in_all(self):
        for btl in BTLS:
            with self.subTest(btl):
                said, err = self.run_scene("leave_a_stuck_rank", 2, btl, until="has left")
                [(sentence, taken)] = said[0]
                self.assertEqual(sentence, "has left")
                self.assertGreaterEqual(taken, 1000)
                self.assertLess(taken, 4 * 1000)  # less than one for each of the mailboxes
                self.assertIn(
                    "plait: rank 0 ends a mailbox and waits for rank 1 to receive the last chunks for 1 s\n", err)
                self.assertEqual(err.count("plait: "), 1, err)

    def test_after_a_late_connect_the_next_one_succeeds(self):
        said, err = self.run_scene("late", 3)
        self.assertEqual(sorted(said), [0, 1, 2], err)
        for rank in range(2):
            # On a busy machine the second rank may be late too.
            self.assertRegex(said[rank][0][0], "^timeout: (rank 2|ranks 1 and 2|rank 0) of 3 has not (come|been met)")
        for rank in range(3):
            self.assertEqual(said[rank][-1][0], "connects")

    def test_mpi_ends_without_a_rank_that_is_stuck_there(self):
        said, err = self.run_scene("stuck_in_finalize", 2, until="ends")
        self.assertEqual([sentence for sentence, _ in said[0]], ["ends"], err)

    def test_mpi_ends_at_once_without_a_dead_rank(self):
        said, err = self.run_scene("end_without_a_dead_rank", 2)
        [(sentence, taken)] = said[0]
        self.assertEqual(sentence, "ends", err)
        self.assertLess(taken, NOTICED)

    @unittest.skipUnless(HYDRA, "MPICH is not installed")
    def test_below_mpich_a_killed_rank_ends_all_and_who_speaks_names_it(self):
        """Hydra and UCX may end survivors before they say something."""
        result = subprocess.run([HYDRA, "-disable-auto-cleanup", "-n", "3", PROGRAM, "killed_in_barrier"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        said = re.findall(r"(?m)^rank ([02]) peer_lost: barrier: .*rank 1 \(pid \d+ on \S+\) is lost: .* (\d+)$",
                          result.stdout)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(len(said), result.stdout.count("peer_lost"), result.stdout)
        self.assertNotIn("timeout", result.stdout)
        for _, taken in said:
            self.assertLess(int(taken), NOTICED)


if __name__ == "__main__":
    unittest.main()
