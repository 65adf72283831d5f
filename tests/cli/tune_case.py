"""Shared by tests of plait tune: a folder for its cache, and a profile, so that none is measured."""

import re
import tempfile
from pathlib import Path

from command import CommandTest

HEAD = "plait plans 2\n"
SMALL = ("--m", 32, "--n", 128, "--k", 64, "--seconds", 0.05, "--plans", 3)

# The machine's figures do not matter in these tests, so none of them measures a profile.
FIGURES = ("ranks 2\nthreads 1\ncopy 5\nsum 10\nchunk 300\nstart 2000\nnarrow 0.05\nbeside 1.1\nuncertainty 0.03\n"
           "product bf16 64 90\nproduct f32 64 70\nproduct s8 64 80\ntransport shm 500 0\nend\n")


class TuneCase(CommandTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cache = self.folder / "sub/plans"
        self.environment["PLAIT_PLAN_CACHE"] = str(self.cache)

    def machine(self):
        """The machine's name in this build, for messages about caches of other machines."""
        self.cache.parent.mkdir(exist_ok=True)
        self.cache.write_text(HEAD + "machine nowhere\n")
        said = self.plait("tune", "--show").stderr
        self.cache.unlink()
        return re.search(r'and this is "(.+)"\n', said)[1]

    def give_profile(self):
        machine = self.machine()
        Path(f"{self.cache}.profile").write_text(f"plait profile 2\nmachine {machine}\n{FIGURES}")
        return machine

    def tune(self, *words):
        result = self.plait("tune", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def entries(self):
        lines = self.cache.read_text().splitlines()
        return [line.split(" | ") for line in lines[2:]]
