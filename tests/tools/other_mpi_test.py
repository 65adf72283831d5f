"""Configures with an MPI that is neither Open MPI nor MPICH."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

PLUGIN = Path(__file__).resolve().parents[2] / "src/comm/engines/mpi/plugin"
HEADER = """#define MPI_VERSION 4
#define MPI_SUBVERSION 0
extern "C" int MPI_Init(int*, char***);
extern "C" int MPI_Finalize();
"""
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(other_mpi CXX)
add_library(plait_comm INTERFACE)
add_subdirectory({PLUGIN} plugin)
"""


class OtherMpiTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)
        (self.folder / "mpi.h").write_text(HEADER)
        source = self.folder / "mpi.cc"
        source.write_text('#include "mpi.h"\nint MPI_Init(int*, char***) { return 0; }\n'
                          'int MPI_Finalize() { return 0; }\n')
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", self.folder / "libother.so", source], check=True)
        self.wrapper = self.folder / "mpicxx"
        self.wrapper.write_text(f'#!/bin/sh\necho "c++ -I{self.folder} -L{self.folder} -lother"\n')
        self.wrapper.chmod(0o755)

    def configure(self, wanted):
        return subprocess.run(
            ["cmake", "-S", self.folder, "-B", self.folder / wanted, f"-DPLAIT_MPI={wanted}",
             f"-DMPI_CXX_COMPILER={self.wrapper}"], capture_output=True, text=True, timeout=200,
            env={**os.environ, "PKG_CONFIG_LIBDIR": str(self.folder)})  # which hides an MPICH

    def test_it_is_refused_where_mpi_is_asked_for_and_left_out_where_not(self):
        result = self.configure("ON")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(" ".join(result.stderr.split()),
                         r"plait: Open MPI \(-DMPI_CXX_COMPILER names its compiler\).* was not found: install it")
        result = self.configure("auto")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"plait: Open MPI .*was not found; building without the plugin for it")


if __name__ == "__main__":
    unittest.main()
