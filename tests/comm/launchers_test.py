"""A program of ranks, started by everything that starts ranks."""

import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import uuid
from pathlib import Path

from mpirun import hear_twice

PROGRAM = os.environ["PLAIT_RANK_PROGRAM"]
PLAIT = os.environ.get("PLAIT_COMMAND")
MPIEXEC = os.environ.get("PLAIT_MPIEXEC") or shutil.which("mpirun")
HAS_MPI = os.environ.get("PLAIT_HAS_MPI")
HYDRA = os.environ.get("PLAIT_HYDRA")  # MPICH's mpiexec, if there is a plugin for MPICH
OTHER_PROGRAM = os.environ["PLAIT_OTHER_PROGRAM"]  # of another build
OTHER_PLUGINS = os.environ.get("PLAIT_OTHER_PLUGINS")
UCX_PLUGIN = os.environ.get("PLAIT_UCX_PLUGIN")
PATIENCE = 180  # seconds after which a rank is taken to hang

LAUNCHERS = re.compile("^(PLAIT_|SLURM_|OMPI_|PMIX_|PMI_|PALS_|MPI_|MV2_|JSM_|TORCHELASTIC_|MASTER_|"
                       "RANK$|WORLD_SIZE$|LOCAL_RANK$|LOCAL_WORLD_SIZE$)")
BARE = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}

# For the leak sanitizer: MPI libraries do not free all that they allocate.
LEAKY = {"ASAN_OPTIONS": "detect_leaks=0"}


def some_port():
    """One below those that the system gives to sockets of other tests."""
    return str(10000 + uuid.uuid4().int % 20000)


class LaunchersTest(unittest.TestCase):
    def expect_ranks(self, output, launcher, transport="shm"):
        self.assertEqual(
            sorted(output.splitlines()),
            [f"rank {rank} of 3, started by {launcher}, over {transport}: the sum is 6"
             for rank in range(3)])

    def run_to_end(self, *words, **variables):
        return subprocess.run(words, env={**BARE, **variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE)

    def start_by_hand(self, places, words=(PROGRAM,), programs=None, **options):
        """Start a process for every place, as a launcher does, and return their output together."""
        places = list(places)
        commands = [[program] for program in programs] if programs else len(places) * [words]
        ranks = [subprocess.Popen(command, env={**BARE, **place}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
                 for command, place in zip(commands, places)]
        try:
            said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return ("".join(out for out, _ in said), "".join(err for _, err in said),
                [rank.returncode for rank in ranks])

    @unittest.skipUnless(PLAIT, "the plait command is not built")
    def test_plait_run(self):
        result = self.run_to_end(PLAIT, "run", "-n", "3", PROGRAM)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.expect_ranks(result.stdout, "plait run")

    @unittest.skipUnless(MPIEXEC, "there is no mpirun here")
    def test_mpirun(self):
        result = self.run_to_end(MPIEXEC, "-np", "3", "--oversubscribe", "--allow-run-as-root",
                                 PROGRAM, PLAIT_TRANSPORT="shm")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_ranks(result.stdout, "Open MPI")

    @unittest.skipUnless(PLAIT and MPIEXEC, "needs the plait command and mpirun")
    def test_plait_run_counts_below_mpirun(self):
        result = self.run_to_end(MPIEXEC, "-np", "1", "--allow-run-as-root", PLAIT, "run", "-n", "3",
                                 PROGRAM)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.expect_ranks(result.stdout, "plait run")

    def torchrun_places(self, **extra):
        port = some_port()
        return [{"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none",
                 "TORCHELASTIC_RESTART_COUNT": "0", **extra} for rank in range(3)]

    def test_torchrun(self):
        out, err, codes = self.start_by_hand(self.torchrun_places())
        self.assertEqual((codes, err), ([0, 0, 0], ""))
        self.expect_ranks(out, "torchrun")

    def expect_that_transports_differ(self, transports, places):
        start = time.monotonic()
        out, err, codes = self.start_by_hand(
            {**place, "PLAIT_TRANSPORT": transport} for place, transport in zip(places, transports))
        self.assertEqual((codes, out), ([2, 2, 2], ""), err)
        lines = err.splitlines()
        self.assertEqual((len(lines), len(set(lines))), (3, 1), err)
        found = re.fullmatch(r"mismatch: rank (\d) uses the transport (\w+), rank 0 (\w+): "
                             r"PLAIT_TRANSPORT must be the same for all ranks", lines[0])
        self.assertTrue(found, err)
        self.assertEqual((found[2], found[3]), (transports[int(found[1])], transports[0]))
        self.assertNotEqual(found[2], found[3])
        self.assertLess(time.monotonic() - start, 30)  # the deadline is 60 s

    def test_ranks_of_different_transports_are_refused(self):
        pairs = [("tcp", "shm"), ("shm", "tcp")]
        if UCX_PLUGIN:
            pairs += [("tcp", "ucx"), ("shm", "ucx")]
        for one, other in pairs:
            for transports in (one, other, other), (one, one, other), (one, other, one):
                self.expect_that_transports_differ(transports, self.torchrun_places())

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_ranks_of_different_transports_are_refused_under_mpirun(self):
        for transports in ("mpi", "shm"), ("shm", "mpi"):
            line = (f'export PLAIT_TRANSPORT={transports[0]}; [ $OMPI_COMM_WORLD_RANK = 1 ] && '
                    f'export PLAIT_TRANSPORT={transports[1]}; exec "$0"')
            words = (MPIEXEC, "-np", "2", "--oversubscribe", "--allow-run-as-root", "sh", "-c", line, PROGRAM)
            refusal = (f"mismatch: rank 1 uses the transport {transports[1]}, rank 0 {transports[0]}: "
                       "PLAIT_TRANSPORT must be the same for all ranks")
            heard = hear_twice(refusal, words, {**BARE, **LEAKY}, PATIENCE)
            self.assertEqual(heard.count(f"{refusal}\n"), 2, heard)

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_slurm_that_mpi_does_not_know(self):
        """MPI takes a process that mpirun has not started for one that is alone."""
        result = self.run_to_end(PROGRAM, SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_STEP_NUM_NODES="2",
                                 SLURM_JOB_ID="7", SLURM_STEP_ID="0", PLAIT_TRANSPORT="mpi", **LEAKY)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr,
                         "MPI says that this is rank 0 of 1, but it was to be rank 1 of 2: was it started by mpirun "
                         r"or mpiexec of .+\? Without MPI, PLAIT_RENDEZVOUS=HOST:PORT says where rank 0 listens\n")

    def test_hydra(self):
        """Its proxy, here this test, starts each rank in a session of its own, and perhaps by a shell."""
        places = [{"PMI_RANK": str(rank), "PMI_SIZE": "3", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "3"}
                  for rank in range(3)]
        for words in ([PROGRAM], ["sh", "-c", '"$0"; exit $?', PROGRAM]):
            out, err, codes = self.start_by_hand(places, words, start_new_session=True)
            self.assertEqual((codes, err), ([0, 0, 0], ""))
            self.expect_ranks(out, "Hydra")

    @unittest.skipUnless(HYDRA, "MPICH is not installed")
    def test_mpiexec_of_mpich(self):
        for variables, transport in ({}, "shm"), ({"PLAIT_TRANSPORT": "mpi"}, "mpi"):
            result = self.run_to_end(HYDRA, "-n", "3", PROGRAM, **variables, **LEAKY)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.expect_ranks(result.stdout, "Hydra", transport)

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_hosts_of_two_ranks_and_of_one(self):
        result = self.run_to_end(MPIEXEC, "-np", "3", "--oversubscribe", "--allow-run-as-root", "sh", "-c",
                                 'export OMPI_COMM_WORLD_LOCAL_SIZE=$((OMPI_COMM_WORLD_RANK == 2 ? 1 : 2)); exec "$0"',
                                 PROGRAM, **LEAKY)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.expect_ranks(result.stdout, "Open MPI", "mpi")

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_a_process_that_never_starts_mpi_is_not_waited_for(self):
        result = self.run_to_end(MPIEXEC, "-np", "2", "--oversubscribe", "--allow-run-as-root",
                                 "sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec sleep 1000; exec "$0"',
                                 PROGRAM, PLAIT_TRANSPORT="mpi", PLAIT_TIMEOUT="1s", **LEAKY)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("timeout: MPI_Init_thread has not ended within 1 s", result.stderr)
        self.assertIn("PLAIT_TIMEOUT", result.stderr)
        self.assertIn("check PLAIT_TRANSPORT on the others", result.stderr)

    def test_ranks_of_different_builds_are_refused_over_tcp(self):
        for secret in ({}, {"PLAIT_SECRET": "a secret of the test"}):
            port = 20000 + uuid.uuid4().int % 9000
            places = self.torchrun_places(PLAIT_TRANSPORT="tcp", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                                          PLAIT_RENDEZVOUS=f"127.0.0.1:{port}", **secret)[:2]
            out, err, codes = self.start_by_hand(places, programs=[PROGRAM, OTHER_PROGRAM])
            self.assertEqual((codes, out), ([2, 2], ""), err)
            lines = set(err.splitlines())
            self.assertEqual(len(lines), 1, err)
            self.assertRegex(lines.pop(), r"^mismatch: rank 1 runs plait 0\.0\.9\+0123456789ab, rank 0 plait "
                                          r"\d+\.\d+\.\d+\+[0-9a-f]{12}: all ranks must run the same build$")

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_processes_of_different_builds_are_refused_over_mpi(self):
        options = ["--oversubscribe", "--allow-run-as-root"]
        result = self.run_to_end(MPIEXEC, *options, "-np", "2", PROGRAM, ":", "-np", "1", "env",
                                 f"PLAIT_PLUGIN_PATH={OTHER_PLUGINS}", OTHER_PROGRAM,
                                 PLAIT_TRANSPORT="mpi", **LEAKY)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        # Three processes write to one pipe, and their lines may be mixed.
        self.assertRegex(result.stderr, r"rank 2 runs plait 0\.0\.9\+0123456789ab, rank 0 plait "
                                        r"\d+\.\d+\.\d+\+[0-9a-f]{12}: all ranks must run the same build")

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_a_plugin_of_another_build_is_refused(self):
        result = self.run_to_end(MPIEXEC, "-np", "1", "--allow-run-as-root", PROGRAM,
                                 PLAIT_TRANSPORT="mpi", PLAIT_PLUGIN_PATH=OTHER_PLUGINS)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, r"mpi: its plugin is of plait 0\.0\.9\+0123456789ab, this is "
                                        r"\d+\.\d+\.\d+\+[0-9a-f]{12}\n")

    @unittest.skipUnless(UCX_PLUGIN, "the ucx transport is not built")
    def test_ranks_over_ucx(self):
        out, err, codes = self.start_by_hand(self.torchrun_places(PLAIT_TRANSPORT="ucx"))
        self.assertEqual((codes, err), ([0, 0, 0], ""))
        self.expect_ranks(out, "torchrun", "ucx")

    @unittest.skipUnless(UCX_PLUGIN, "the ucx transport is not built")
    def test_ucx_is_refused_in_one_sentence_where_its_library_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            # A plugin that wants another library than there is stands for a host without UCX.
            plugin = Path(UCX_PLUGIN).read_bytes().replace(b"libucp.so.0", b"libnone.so\0")
            Path(folder, "libplait_ucx.so").write_bytes(plugin)
            out, err, codes = self.start_by_hand(self.torchrun_places(PLAIT_TRANSPORT="ucx", PLAIT_PLUGIN_PATH=folder,
                                                                      WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")[:1])
        self.assertEqual((codes, out), ([2], ""))
        self.assertEqual(err, "invalid_argument: no transport for rank 0 of 2: ucx: its plugin does not load: "
                              "libnone.so: cannot open shared object file: No such file or directory\n")

    @unittest.skipUnless(MPIEXEC and HAS_MPI, "the mpi transport is not built")
    def test_mpi_starts_and_ends(self):
        result = self.run_to_end(MPIEXEC, "-np", "3", "--oversubscribe", "--allow-run-as-root",
                                 PROGRAM, PLAIT_TRANSPORT="mpi", **LEAKY)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.expect_ranks(result.stdout, "Open MPI", "mpi")


if __name__ == "__main__":
    unittest.main()
