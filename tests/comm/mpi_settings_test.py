"""Settings for the MPI library that plait starts; it leaves the user's settings alone."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

OPENMPI_PROGRAM = os.environ.get("PLAIT_OPENMPI_PROGRAM")
MPICH_PROGRAM = os.environ.get("PLAIT_MPICH_PROGRAM")
MPIEXEC = os.environ.get("PLAIT_MPIEXEC")
HYDRA = os.environ.get("PLAIT_HYDRA")
HAS_RDMA = any(Path("/sys/class/infiniband").glob("*"))
PATIENCE = 120
BARE = {name: value for name, value in os.environ.items()
        if not re.match("^(PLAIT_|OMPI_|PMIX_|PMI_|SLURM_|UCX_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)", name)}

# Flags of Open MPI's tcp BTL.
SEND, PUT, INPLACE, NEED_ACK, NEED_CSUM, HETERO_RDMA = 0x1, 0x2, 0x8, 0x10, 0x20, 0x100
WITHOUT_PUT = SEND | INPLACE | NEED_ACK | NEED_CSUM | HETERO_RDMA


class MpiSettingsTest(unittest.TestCase):
    def said_by(self, *words, **variables):
        done = subprocess.run(words, env={**BARE, "ASAN_OPTIONS": "detect_leaks=0", **variables}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def flags(self, *options, **variables):
        """Those that Open MPI uses in ranks whose MPI plait has started."""
        return int(self.said_by(MPIEXEC, "-n", "2", "--oversubscribe", "--allow-run-as-root", "--mca", "pml", "ob1",
                                "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo", *options,
                                OPENMPI_PROGRAM, "parameter", "btl_tcp_flags", "2", **variables))

    def threshold(self, hosts, **variables):
        """The variable for MPICH's UCX in ranks that are told that they are on so many hosts."""
        return self.said_by(HYDRA, "-n", "2", MPICH_PROGRAM, "variable", "UCX_RNDV_THRESH", str(hosts), **variables)

    @unittest.skipUnless(OPENMPI_PROGRAM and MPIEXEC, "there is no plugin for Open MPI")
    def test_open_mpi_sends_without_put(self):
        with tempfile.TemporaryDirectory() as home:
            self.assertEqual(self.flags(HOME=home), WITHOUT_PUT)

    @unittest.skipUnless(OPENMPI_PROGRAM and MPIEXEC, "there is no plugin for Open MPI")
    def test_flags_of_the_user_stay(self):
        mine = SEND | PUT | INPLACE
        with tempfile.TemporaryDirectory() as home:
            self.assertEqual(self.flags("--mca", "btl_tcp_flags", "send,put,inplace", HOME=home), mine)
            self.assertEqual(self.flags(HOME=home, OMPI_MCA_btl_tcp_flags="send,put,inplace"), mine)

    @unittest.skipUnless(OPENMPI_PROGRAM and MPIEXEC, "there is no plugin for Open MPI")
    def test_flags_in_a_file_of_the_user_stay(self):
        mine = SEND | PUT | INPLACE
        with tempfile.TemporaryDirectory() as home:
            file = Path(home, ".openmpi", "mca-params.conf")
            file.parent.mkdir()
            file.write_text("# mine\n  btl_tcp_flags =send,put,inplace\n", encoding="utf-8")
            self.assertEqual(self.flags(HOME=home), mine)
            other = Path(home, "other.conf")
            file.rename(other)
            self.assertEqual(self.flags(HOME=home, OMPI_MCA_mca_base_param_files=str(other)), mine)
            settings = Path(home, "openmpi-mca-params.conf")
            settings.write_text("btl_tcp_flags = send,put,inplace\n", encoding="utf-8")
            self.assertEqual(self.flags(HOME=home, OPAL_SYSCONFDIR=home), mine)
            settings.unlink()
            file.write_text("# btl_tcp_flags = send,put,inplace\nbtl_tcp_flags_of_mine = 1\n", encoding="utf-8")
            self.assertEqual(self.flags(HOME=home), WITHOUT_PUT)

    @unittest.skipUnless(MPICH_PROGRAM and HYDRA, "MPICH is not installed")
    def test_mpich_sends_eagerly_unless_the_user_or_a_card_says_otherwise(self):
        with tempfile.TemporaryDirectory() as home:
            self.assertEqual(self.threshold(2, HOME=home), "unset" if HAS_RDMA else "inf")
            self.assertEqual(self.threshold(2, HOME=home, UCX_RNDV_THRESH="100k"), "100k")
            for line, stays in (("UCX_RNDV_THRESH = 100k", True), ("# UCX_RNDV_THRESH=100k", False)):
                Path(home, "ucx.conf").write_text(line + "\n", encoding="utf-8")
                expected = "unset" if stays or HAS_RDMA else "inf"
                self.assertEqual(self.threshold(2, HOME=home), expected)
                self.assertEqual(self.threshold(2, UCX_CONFIG_DIR=home, UCX_WARN_UNUSED_ENV_VARS="n"), expected)

    @unittest.skipUnless(MPICH_PROGRAM and HYDRA, "MPICH is not installed")
    def test_mpich_is_left_alone_on_one_host(self):
        self.assertEqual(self.threshold(1), "unset")


if __name__ == "__main__":
    unittest.main()
