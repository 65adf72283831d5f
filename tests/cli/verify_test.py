"""plait verify: its counts, its failures, and its refusals."""

import json
import os
import signal
import socket
import subprocess
import unittest
from pathlib import Path

from command import PATIENCE, PLAIT, CommandTest, wait_until

MPIEXEC = os.environ.get("PLAIT_MPIEXEC")
HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
AS_ONE = r"(\d+ of the passed had to give one rank's bits too, and did|" \
         r"none of the passed had to give one rank's bits)\n$"


class VerifyTest(CommandTest):
    def verify(self, *words):
        result = self.plait("verify", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_counts_what_it_has_run(self):
        self.assertRegex(self.verify("--cases", 8, "--seed", 5), r"^8 passed, 0 failed\n" + AS_ONE)
        self.assertRegex(self.verify("--layers", "--cases", 6, "-t", "threads"), r"^6 passed, 0 failed\n" + AS_ONE)
        self.assertRegex(self.verify("--ulysses", "--cases", 24, "--seed", 3), r"^24 passed, 0 failed\n" + AS_ONE)
        self.assertRegex(self.verify("--experts", "--cases", 24, "--seed", 3), r"^24 passed, 0 failed\n" + AS_ONE)
        self.assertRegex(self.verify("--heads", "--cases", 24, "--seed", 3), r"^24 passed, 0 failed\n" + AS_ONE)

    def test_only_one_problem_in_each_world(self):
        self.assertRegex(self.verify("--only", 7, "--ranks", "2,3", "-t", "shm"), r"^2 passed, 0 failed\n" + AS_ONE)
        out = self.verify("--only", "4,9,7", "--ranks", 2, "-t", "threads")
        self.assertRegex(out, r"^3 passed, 0 failed\n" + AS_ONE)

    def test_operators_of_ones_choice(self):
        for op in ["matmul-all-reduce", "all_gather_matmul,matmul"]:
            self.assertRegex(self.verify("-c", 6, "--op", op, "-t", "threads"), r"^6 passed, 0 failed\n" + AS_ONE)

    def test_none_that_had_to_give_one_ranks_bits_is_no_failure(self):
        words = ("--cases", 4, "--seed", 9, "--transport", "threads")
        self.assertEqual(self.verify(*words, "--ranks", 2),
                         "4 passed, 0 failed\nnone of the passed had to give one rank's bits\n")
        self.assertRegex(self.verify(*words, "--heads"), r"\n[1-9]\d* of the passed had to give one rank's bits too")

    def test_json(self):
        words = ("--cases", 4, "--seed", 9, "--ranks", 2, "--transport", "threads", "--json", "-")
        counts = json.loads(self.verify(*words))
        self.assertRegex(counts.pop("digest"), "^[0-9a-f]{16}$")
        self.assertEqual(counts, {"seed": 9, "passed": 4, "failed": 0, "as_on_one_rank": 0})

    def test_the_digest_is_that_of_every_processor_with_fma(self):
        """Results' bits, noted on an x86 with AVX-512: processors with FMA sum in the order of AVX2."""
        if b" fma " not in Path("/proc/cpuinfo").read_bytes() and os.uname().machine == "x86_64":
            self.skipTest("this processor has no FMA")
        noted = {
            ("--cases", 60, "--seed", 3, "--ranks", "1,2,3"): "a2fcfe5c85b27f55",
            ("--cases", 40, "--seed", 3, "--layers"): "317b407005fd9ff8",
        }
        for words, digest in noted.items():
            limited = {**self.environment, "PLAIT_ISA": "avx2"}
            result = self.plait("verify", "-t", "threads", "--digest", *words, env=limited)
            self.assertEqual((result.returncode, result.stderr), (0, ""), words)
            self.assertEqual(result.stdout.splitlines()[-1], "digest " + digest, words)

    def test_the_digest_depends_on_neither_transport_nor_order(self):
        words = ("--cases", 12, "--ranks", "2,3", "--digest")
        threads, shm = (self.verify(*words, "--seed", 6, "-t", transport) for transport in ("threads", "shm"))
        self.assertEqual(threads, shm)
        self.assertNotEqual(threads, self.verify(*words, "--seed", 7, "-t", "threads"))

    def test_two_four_and_eight_ranks_give_the_bits_of_one(self):
        words = ("--cases", 12, "--seed", 1, "--ranks", "2,4,8", "--transport", "threads", "--json", "-")
        operators = json.loads(self.verify("--op", "matmul-all-reduce,matmul-reduce-scatter", *words))
        layers = json.loads(self.verify("--layers", *words))
        for counts in operators, layers:
            self.assertEqual((counts["passed"], counts["failed"]), (12, 0))
            self.assertGreater(counts["as_on_one_rank"], 2)

    def assert_compared_with_one_rank(self, verify):
        """Two ranks that `verify` starts have the counts of two threads, and some of their problems one rank's bits."""
        words = ("--cases", 18, "--seed", 4, "--op", "matmul-all-reduce,matmul-reduce-scatter", "--json", "-")
        counts = json.loads(verify(*words))
        self.assertEqual(counts, json.loads(self.verify("--ranks", 2, "--transport", "threads", *words)))
        self.assertEqual((counts["passed"], counts["failed"]), (18, 0))
        self.assertGreater(counts["as_on_one_rank"], 2)

    def over(self, transport, *words):
        with socket.socket() as kept:  # from other processes, though rank 0 may listen there
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{kept.getsockname()[1]}"
            result = self.plait("run", "-n", 2, "--", PLAIT, "verify", "--transport", transport, *words,
                                env={**self.environment, "PLAIT_RENDEZVOUS": place})
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_ranks_over_tcp_give_the_bits_of_one(self):
        self.assert_compared_with_one_rank(lambda *words: self.over("tcp", *words))

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_ranks_over_ucx_give_the_bits_of_one(self):
        self.assert_compared_with_one_rank(lambda *words: self.over("ucx", *words))

    def start_many(self):
        process = self.start("verify", "--cases", 1_000_000, "--seed", 3, "--ranks", 2, "--transport", "shm")
        wait_until(lambda: len(self.ranks()) == 2, "two ranks")
        wait_until(self.told_to_have_passed, "some problems that have passed")
        return process

    def words_of(self, pid):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    def ranks(self):
        return [pid for pid in self.marked() if b"--as-rank" in self.words_of(pid)]

    def told_to_have_passed(self):
        """The first number of the report in which the ranks tell their progress."""
        words = self.words_of(self.ranks()[0])
        board = words[words.index(b"--as-rank") + 1]
        return int.from_bytes(Path(os.fsdecode(board)).read_bytes()[:8], "little")

    def test_one_that_is_told_to_end_says_how_far_it_was(self):
        process = self.start_many()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertRegex(out, r"^[1-9]\d* passed, 0 failed; the others were not run\n" + AS_ONE)
        self.assertEqual((process.returncode, err.count("\n")), (128 + signal.SIGTERM, 1), err)

    def test_one_that_is_told_to_end_in_a_later_world_ends(self):
        """The signal settings that the first world's run changed must be restored."""
        # Processes of the second world: two ranks and their guard, or none. The first one has a rank and a guard.
        for transport, ranks, later in [("shm", "1,2", 3), ("shm,threads", "1", 0)]:
            with self.subTest(transport):
                # The second world is still at work when the signal comes.
                process = self.start("verify", "--cases", 200, "--seed", 3, "--ranks", ranks, "--transport", transport)
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                wait_until(lambda: children.read_text().split(), "a rank of the first world")
                wait_until(lambda: len(children.read_text().split()) == later, "the second world")
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=PATIENCE)
                self.assertIn(process.returncode, (128 + signal.SIGTERM, -signal.SIGTERM), err)
                self.assertNotIn("killing", err)

    def test_a_rank_that_is_lost_has_failed_one_problem(self):
        process = self.start_many()
        os.kill(self.ranks()[0], signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertRegex(out, r"^[1-9]\d* passed, 1 failed\n" + AS_ONE)
        self.assertRegex(err, r"plait verify: again: plait verify --seed 3 --only [\d,]+ --ranks 2 --transport shm\n")
        self.assertEqual(process.returncode, 3)

    def under_mpirun(self, *words):
        return subprocess.run(
            [MPIEXEC, "-n", "2", "--oversubscribe", "--allow-run-as-root", "-x", "OMP_NUM_THREADS=1",
             PLAIT, "verify", "--transport", "mpi", *map(str, words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)

    @unittest.skipUnless(MPIEXEC, "the mpi transport is not built")
    def test_ranks_of_mpirun_tell_once_what_all_have_found(self):
        def verify(*words):
            result = self.under_mpirun(*words)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout

        self.assert_compared_with_one_rank(verify)

    @unittest.skipUnless(MPIEXEC, "the mpi transport is not built")
    def test_ranks_of_mpirun_refuse_together(self):
        result = self.under_mpirun("--ranks", "3")
        self.assertIn("plait verify: --ranks 3: Open MPI has started 2 ranks\n", result.stderr)
        self.assertEqual(result.returncode, 2)
        result = self.under_mpirun("--json", "/nowhere/file")
        self.assertEqual(result.stderr.count("cannot write /nowhere/file"), 1, result.stderr)
        self.assertEqual(result.returncode, 1)

    def test_a_file_that_cannot_be_written_is_refused_before(self):
        result = self.plait("verify", "--cases", 100_000_000, "--json", "/nowhere/file")
        self.assert_says(result, 1, "plait verify: cannot write /nowhere/file: No such file or directory")

    def test_refusals(self):
        for words, sentence in [
            (["--cases", "0"], "--cases 0 is not a whole number from 1 to 100000000"),
            (["--ranks", "2,x"], "--ranks x is not a whole number from 1 to 64"),
            (["--transport", "nccl"], "--transport nccl is none of threads, shm, tcp, mpi, ucx"),
            (["--transport", "ucx"], "the transport ucx needs ranks that plait run --hosts, torchrun or another "
             "launcher has started"),
            (["--transport", "tcp"], "the transport tcp needs ranks that plait run --hosts, torchrun or another "
             "launcher has started"),
            (["--transport", "shm,tcp"], "--transport shm,tcp: tcp cannot be combined with others, "
                                          "because a launcher starts its ranks"),
            (["--transport", "mpi"], "mpirun starts ranks of the transport mpi: "
                                     "mpirun -n 3 plait verify --transport mpi"),
            (["--transport", "shm,mpi"], "--transport shm,mpi: mpi cannot be combined with others, "
                                         "because a launcher starts its ranks"),
            (["--op", "all-reduce"], "--op all-reduce is not an operator; known are matmul, "
                                     "matmul-all-reduce, matmul-reduce-scatter, matmul-all-gather, "
                                     "all-gather-matmul, reduce-scatter-matmul, all-reduce-matmul"),
            (["--heads", "--ulysses"], "--ulysses and --heads cannot be combined"),
            (["--op", "matmul", "--layers"], "--op and --layers cannot be combined"),
            (["more"], "unexpected word more (plait verify --help)"),
        ]:
            result = self.plait("verify", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait verify: {sentence}\n"))


if __name__ == "__main__":
    unittest.main()
