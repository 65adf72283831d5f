"""plait_bench_gemm: every contender runs with every dtype, and the output can be turned into rows."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import rows

PROGRAM = os.environ["PLAIT_BENCH_GEMM"]


def call(*words, status=0):
    result = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=600)
    assert result.returncode == status, (words, result)
    return result


# oneDNN may not support f16, and supports bf16 only with AVX-512, which its variable may leave out.
HAS_AVX512 = (" avx512bw " in Path("/proc/cpuinfo").read_text()
              and os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper().startswith(("ALL", "DEFAULT", "AVX512")))
UNKNOWN_TO_ONEDNN = "/f16/onednn" if HAS_AVX512 else "/(f16|bf16)/onednn"


class ProgramTest(unittest.TestCase):
    def test_every_contender_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "gemm_bloom_7b.out_1.json"
            call("--shape", "bloom_7b.out", "--benchmark_filter=/(peak/0|[a-z0-9_]+/4)/real_time$",
                 "--benchmark_min_time=0.001", f"--benchmark_out={file}")
            run = json.loads(file.read_text())
            results = rows.Results([file])
        self.assertEqual((run["context"]["n"], run["context"]["k"]), ("4096", "512"))
        for one in run["benchmarks"]:
            if not re.search(UNKNOWN_TO_ONEDNN, one["name"]):
                self.assertNotIn("error_occurred", one, one)
        cases = [rows.parse(one["name"]) for one in run["benchmarks"]]
        for dtype in ("bf16", "f32", "f16"):
            who = [case.who for case in cases if case.dtype == dtype]
            self.assertEqual(who[:2], ["peak", "plait"])
            for contender in ("plait_s8", "plait_s8_group", "plait_s4_group",
                              "plait_plain", "plait_windows", "plait_hook", "plait_gradient", "one_thread",
                              "two_threads"):
                self.assertIn(contender, who)
            self.assertGreater(results.of_peak(rows.Case("bloom_7b.out", dtype, "plait", 4))[0], 0)

    def test_packing_is_measured_beside_a_copy(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "packing.json"
            call("--shape", "bloom_7b.out", "--benchmark_filter=/(copy|pack_[a-z_]+)/", "--benchmark_min_time=0.001",
                 f"--benchmark_out={file}")
            run = json.loads(file.read_text())
        self.assertEqual([rows.parse(one["name"]).who for one in run["benchmarks"]],
                         3 * ["copy", "pack_out_in", "pack_in_out"])
        for one in run["benchmarks"]:
            self.assertGreater(one["bytes"], 0)

    def test_its_shapes(self):
        names = call("--list").stdout.split()
        self.assertEqual(len(names), 13)
        self.assertEqual(names[0], "square")
        refusal = call("--shape", "cube", status=2)
        self.assertTrue(refusal.stderr.startswith("plait_bench_gemm: unknown shape cube; known"))


if __name__ == "__main__":
    unittest.main()
