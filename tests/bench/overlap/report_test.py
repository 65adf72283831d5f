"""report.py: which files a figure is from, and what is met."""

import json
import tempfile
import unittest
from pathlib import Path

import report

PROBLEM = {"op": "matmul_all_reduce", "m": 512, "n": 64, "k": 32, "ranks": 2, "transport": "shm", "machine": "A",
           "t_gemm_ms": 4, "t_comm_ms": 4, "t_comm_cpu_ms": 1}


def schedules(**efficiencies):
    """efficiencies: {plan: efficiency}; with efficiency 1 twice as fast as serial."""
    return [{"plan": plan, "median_ms": 8 - 4 * one, "speedup": 8 / (8 - 4 * one), "overlap_efficiency": one}
            for plan, one in {"serial": 0, "pipelined parts=4": 0.8, "pipelined parts=8": 0.8, **efficiencies}.items()]


class ReportTest(unittest.TestCase):
    def results(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"overlap_{name}.json" for name in files]
            for path, content in zip(paths, files.values()):
                path.write_text(json.dumps(content))
            return report.Results(paths)

    def bars(self, **files):
        return {row[0]: tuple(row[1:]) for row in self.results(**files).bars()}

    def test_efficiencies_are_of_links_alone(self):
        bars = self.bars(**{
            "link_matmul-all-reduce_bf16_0.5": [{**PROBLEM, "schedules": schedules(fused=one)} for one in (0.89, 0.97)],
            "link_matmul-all-reduce_bf16_2": {**PROBLEM, "schedules": schedules(fused=0.98)},
            "alone_matmul-all-reduce_bf16": {**PROBLEM, "schedules": schedules(fused=-0.1)}})
        self.assertEqual(bars["fused: efficiency, median of 3"], ("0.970", "0.96", "yes"))
        self.assertEqual(bars["fused: efficiency, lowest"], ("0.890", "0.90", "**no**"))
        self.assertEqual(bars["pipelined parts=8: efficiency, median of 3"], ("0.800", "0.85", "**no**"))
        self.assertEqual(bars["bf16, no link: fused over serial, lowest of 1"], ("0.952", "0.99", "**no**"))

    def test_rivals_and_worlds(self):
        rival = {**PROBLEM, "rival": "B", "rival_ms": 12,
                 "plans": [{"plan": "serial", "median_ms": 12, "over_rival": 1},
                           {"plan": "fused", "median_ms": 10, "over_rival": 1.2}]}
        files = {"rival_matmul-all-reduce_bf16": [rival],
                 "worlds_matmul-all-reduce_bf16_3": {**PROBLEM, "ranks": 3, "schedules": schedules(fused=0.91)},
                 "worlds_matmul-all-reduce_bf16_8": {**PROBLEM, "ranks": 8, "schedules": schedules(fused=0.93)}}
        bars = self.bars(**files)
        self.assertEqual(bars["no link: fused over oneDNN and MPI, lowest of 1"], ("1.200", "1.00", "yes"))
        self.assertEqual(bars["fused, 3, 4 and 8 ranks: efficiency, lowest of 2"], ("0.910", "0.90", "yes"))
        results = self.results(**files)
        self.assertIn("beside B", results.conditions())
        self.assertEqual([len(rows) for _, _, rows in results.tables()], [3, 0, 0, 1, 2])


if __name__ == "__main__":
    unittest.main()
