"""plait info: what it finds is true for this machine."""

import json
import os
import platform
import unittest

from info_case import InfoCase

X86 = ["sse2", "avx2", "avx512", "avx512-bf16", "amx"]  # instruction sets; each includes those before it
SETS = ["neon", "neon-bf16", "neon-bfmmla"] if platform.machine() == "aarch64" else X86


class FindingsTest(InfoCase):
    def test_it_is_this_machine(self):
        found = self.json()
        self.assertEqual(found["host"]["kernel"], platform.release())
        self.assertEqual(found["host"]["machine"], platform.machine())
        self.assertEqual(found["memory"]["page_bytes"], os.sysconf("SC_PAGESIZE"))
        self.assertEqual(found["usable"]["cpus"], sorted(os.sched_getaffinity(0)))
        self.assertGreaterEqual(found["processor"]["cpus"], found["usable"]["cores"])
        total = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
        self.assertAlmostEqual(found["memory"]["bytes"] / total, 1, delta=0.1)
        with open("/proc/cpuinfo") as cpuinfo:
            flags = set(cpuinfo.read().split())
        for feature, there in found["processor"]["features"].items():
            self.assertEqual(there, feature in flags, feature)

    def test_the_affinity_mask_is_what_it_may_use(self):
        last = max(os.sched_getaffinity(0))
        result = self.plait("info", "--json", preexec_fn=lambda: os.sched_setaffinity(0, {last}))
        self.assertEqual(json.loads(result.stdout)["usable"]["cpus"], [last])

    @unittest.skipUnless(SETS is X86, "this processor has no x86 instructions")
    def test_kernels_use_no_more_than_they_may(self):
        self.environment.pop("PLAIT_ISA", None)
        usual = self.json()
        best = SETS.index(usual["processor"]["instruction_set"])
        self.assertNotIn("PLAIT_ISA", usual["processor"]["model"])
        for i, name in enumerate(SETS):
            with self.subTest(name):
                self.environment["PLAIT_ISA"] = name
                found = self.json()
                self.assertEqual(found["processor"]["instruction_set"], SETS[min(i, best)])
                model = usual["processor"]["model"] + (f", PLAIT_ISA={name}" if i < best else "")
                self.assertEqual(found["processor"]["model"], model)
                self.assertIn(f"\n  uses      {SETS[min(i, best)]}\n", self.plait("info").stdout)
                left_out = [reason for one in found["backends"] for reason in one["refusals"].values()
                            if reason.startswith("PLAIT_ISA leaves out ")]
                self.assertEqual(bool(left_out), i < min(best, SETS.index("avx512-bf16")) or i < best == 4)
                if i < SETS.index("avx512-bf16"):
                    able = {operand for one in found["backends"] for operand in one["operands"]}
                    self.assertEqual(able, {"f32"})

    def test_an_unknown_limit_of_kernels_stops_what_multiplies(self):
        self.environment["PLAIT_ISA"] = "avx"
        self.assertIsNone(self.json()["processor"]["instruction_set"])
        result = self.plait("bench", "matmul", "--m", 1, "--n", 64, "--k", 64, "--repeat", 1)
        sentence = "PLAIT_ISA=avx is none of " + ", ".join(SETS)
        self.assert_says(result, 2, f"plait bench: {sentence}")


if __name__ == "__main__":
    unittest.main()
