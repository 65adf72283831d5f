"""The build name, by which ranks of other rules refuse each other: what changes it."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(os.environ["PLAIT_SOURCES"])
AGREED = [Path(name).relative_to(SOURCES) for name in os.environ["PLAIT_AGREED"].split(":")]

# A rule of each kind: what travels, how calls are cut in chunks, and in which tree sums are added.
RULES = ["src/comm/core/tag.cc", "src/overlap/cut.cc", "src/plan/sizes.cc", "src/gemm/leaves.h", "src/tensor/kernels.h",
         "src/tensor/kernels.cc", "src/tensor/x86/avx2.cc", "src/tensor/x86/avx512.cc", "src/ops/shapes.h",
         "src/ops/op.cc", "src/gemm/strip.cc", "src/gemm/vector/rows.h", "src/nn/column.cc"]


class BuildNameTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for source in AGREED:
            copy = self.root / source
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((SOURCES / source).read_bytes())

    def name(self):
        """The build name of the copied sources, as the build makes it."""
        out = self.root / "build_name.cc"
        sources = ";".join(str(self.root / source) for source in AGREED)
        subprocess.run([os.environ["PLAIT_CMAKE"], "-D", f"OUT={out}", "-D", "VERSION=1.2.3", "-D", f"ROOT={self.root}",
                        "-D", f"SOURCES={sources}", "-P", SOURCES / "cmake" / "build_name.cmake"],
                       check=True, timeout=100)
        return out.read_text().split('"')[3]

    def test_a_change_of_any_rule_changes_it(self):
        before = self.name()
        self.assertRegex(before, r"^1\.2\.3\+[0-9a-f]{12}$")
        for rule in RULES:
            with self.subTest(rule):
                copy = self.root / rule
                text = copy.read_bytes()
                copy.write_bytes(text + b"// another rule\n")
                self.assertNotEqual(self.name(), before)
                copy.write_bytes(text)
        self.assertEqual(self.name(), before)


if __name__ == "__main__":
    unittest.main()
