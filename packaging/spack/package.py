# Copyright 2026 The plait maintainers
#
# SPDX-License-Identifier: Apache-2.0

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Plait(CMakePackage):
    """Tensor-parallel communication hidden behind the matrix product that needs it: a C++20
    library and a command. Every schedule gives the same bits."""

    # The addresses of a release's page, archive and repository belong here; `spack develop` takes
    # this tree in their place.
    license("Apache-2.0")

    version("0.1.0")

    variant("command", default=True, description="Build the command plait")
    variant("mpi", default=False, description="Build the plugin for the MPI that was chosen")
    variant("ucx", default=False, description="Build the plugin for UCX")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("fmt@9:", type="build")
    depends_on("cli11@2:", type="build", when="+command")
    depends_on("nlohmann-json@3.11:", type="build", when="+command")
    depends_on("hwloc@2:", when="+command")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("ucx@1.13:", when="+ucx")

    generator("ninja")

    conflicts("platform=darwin", msg="plait needs Linux")
    conflicts("platform=windows", msg="plait needs Linux")
    conflicts("%gcc@:11", msg="plait needs C++20 of gcc 12")

    def cmake_args(self):
        return [
            self.define("PLAIT_BUILD_TESTS", False),
            self.define("PLAIT_BUILD_BENCHES", False),
            self.define("PLAIT_BUILD_EXAMPLES", False),
            self.define("PLAIT_CUDA", False),
            self.define("PLAIT_WERROR", False),
            self.define_from_variant("PLAIT_BUILD_COMMAND", "command"),
            self.define_from_variant("PLAIT_MPI", "mpi"),
            self.define_from_variant("PLAIT_UCX", "ucx"),
        ]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def compare_bits(self):
        if self.spec.satisfies("+command"):
            Executable(self.prefix.bin.plait)("verify", "--cases", "20", "--transport", "threads")
