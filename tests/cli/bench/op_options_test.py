"""plait bench OPERATOR: refusals."""

import tempfile
import unittest
from pathlib import Path

from command import PLAIT
from operator_case import OperatorCase


class OpOptionsTest(OperatorCase):
    def test_refusals(self):
        for words, sentence in [
            ([], "--m is missing; give --m, --n and --k, or --shapes FILE"),
            (["--m", "8,9", "--n", "8,9,10", "--k", "8"],
             "--m, --n and --k have 2, 3 and 1 sizes; give each of them the same number, or one"),
            ([*self.SIZE, "--plan", "fused", "--schedule", "serial"],
             "--plan cannot be combined with --schedule serial"),
            ([*self.SIZE, "--plan", "fused", "--parts", 3], "--plan cannot be combined with --parts 3"),
            ([*self.SIZE, "--link", "ratio=1", "--ranks", 1, "-t", "threads"],
             "--link ratio=1: one rank has nothing to communicate"),
            ([*self.SIZE, "--transport", "shn"],
             "there is no transport shn; did you mean shm?"),
            ([*self.SIZE, "--transport", "mpi"],
             "mpirun starts ranks of the transport mpi: mpirun -n 2 plait bench ..."),
            ([*self.SIZE, "--link", "share=0.1"],
             "--link share=0.1: share= applies to training steps; operators take ratio=, as in ratio=1"),
            ([*self.SIZE, "--link", "ratio=0"], "--link ratio=0: the ratio must be a number above 0 and up to 1000"),
            ([*self.SIZE, "--schedule", "fast"],
             "--schedule fast is none of serial, pipelined, fused, all"),
            ([*self.SIZE, "--schedule", "serial,auto"],
             "--schedule auto is none of serial, pipelined, fused, all; plait info --why shows the automatic plan of a "
             "problem, and --plan takes it"),
            ([*self.SIZE, "--plan", "fused chunk=x"], "plan: chunk=x is not a whole number of 0 or more"),
            ([*self.SIZE, "--weight", "s9"],
             "--weight s9 is not a weight; give f32, bf16, f16, plain, or a scheme such as s8:channel or "
             "s4:group=64"),
            (["--shapes", "/nowhere/at/all"], "--shapes /nowhere/at/all cannot be read: No such file or directory"),
            (["--shapes", "/dev/zero"], "--shapes /dev/zero is a device, not a file"),
            ([*self.SIZE, "--shapes", "/nowhere/at/all"],
             "--shapes /nowhere/at/all cannot be combined with --m, --n or --k"),
        ]:
            result = self.plait("bench", "matmul-all-reduce", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait bench: {sentence}\n"))
        result = self.plait("bench", "all-gather-matmul", *self.SIZE, "--plan", "pipelined axis=columns parts=4")
        self.assert_says(result, 2, "plait bench: all_gather_matmul: axis=columns would cut the k of a product; what "
                                    "comes first here is cut in rows")
        self.assert_says(self.plait("bench", "all-gather-matmul", *self.SIZE, "--wire", "bf16"), 2,
                         "plait bench: --wire bf16 applies to partial sums, and all_gather_matmul has none")
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE, "-t", "threads")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--transport threads: plait run has started 2 processes, but ranks of "
                      "this transport are threads of one process",
                      result.stderr)
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE, "--ranks", 3)
        self.assertEqual(result.returncode, 2)
        self.assertIn("plait bench: --ranks 3: plait run has started 2 ranks\n", result.stderr)
        result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--backend", "abacus")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^plait bench: there is no backend abacus; there are .*vector, .*reference\n$")
        if "amx_tile" not in Path("/proc/cpuinfo").read_text():
            result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--backend", "amx")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"^plait bench: matmul: backend amx can't do .*: .*AMX.*\n$")
        found = self.json("all-reduce-matmul", *self.SIZE, "--backend", "reference", "--schedule", "serial")
        self.assertEqual(found["schedules"][0]["bits_equal"], True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("8 8 8  # so far so good\n8 x 8\n")
            file.flush()
            self.assert_says(self.plait("bench", "matmul-all-reduce", "--shapes", file.name), 2,
                             f"plait bench: --shapes {file.name}, line 2: x is not a whole number from 1 to 16777216")
        result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--schedule", "fused")
        self.assertEqual((result.returncode, result.stderr),
                         (2, "plait bench: all_reduce_matmul has no fused schedule\n"))


if __name__ == "__main__":
    unittest.main()
