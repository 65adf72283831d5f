"""keep.py: the files of each figure, and the targets that are met."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import keep
import report  # from the folder above, which keep has named

PROBLEM = {"op": "matmul_all_reduce", "m": 512, "n": 64, "k": 32, "ranks": 2, "transport": "shm", "machine": "A",
           "t_gemm_ms": 4, "t_comm_ms": 4, "t_comm_cpu_ms": 1}


def schedules(**efficiencies):
    """efficiencies: {plan: efficiency}; with efficiency 1 twice as fast as serial."""
    return [{"plan": plan, "median_ms": 8 - 4 * one, "speedup": 8 / (8 - 4 * one), "overlap_efficiency": one}
            for plan, one in {"serial": 0, "pipelined parts=4": 0.8, "pipelined parts=8": 0.8, **efficiencies}.items()]


class KeepTest(unittest.TestCase):
    def results(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"overlap_{name}.json" for name in files]
            for path, content in zip(paths, files.values()):
                path.write_text(json.dumps(content))
            command = ["keep.py", "--folder", f"{folder}/kept", "--seconds", "0.3", *map(str, paths)]
            with mock.patch.object(sys, "argv", command):
                self.assertEqual(keep.main(), 0)
            return report.Results(sorted(Path(folder, "kept").glob("*.json")))

    def test_what_was_kept_says_when(self):
        results = self.results(**{"link_matmul-all-reduce_f32_2": {**PROBLEM, "schedules": schedules(fused=0.98)}})
        self.assertEqual(results.table(keep.TABLES["link"])[2][0][:5],
                         ["matmul_all_reduce", "f32", "512 x 64 x 32", "2", "4"])
        self.assertRegex(results.conditions(), r"^\d{4}-\d\d-\d\d, .* \(family .*, model .*\).*, ranks 2, "
                                               r"`./do bench overlap --seconds 0.3`: over links in f32$")

    def bars(self, **files):
        return self.bars_of(self.results(**files))

    @staticmethod
    def bars_of(results):
        return {row[0]: tuple(row[1:]) for title, _, rows in results.tables() if title == "What was promised"
                for row in rows}

    def test_efficiencies_are_of_links_alone(self):
        bars = self.bars(**{
            "link_matmul-all-reduce_bf16_0.5": [
                {**PROBLEM, "n": n, "schedules": schedules(fused=one)} for n, one in ((64, 0.89), (128, 0.97))],
            "link_matmul-all-reduce_bf16_2": {**PROBLEM, "schedules": schedules(fused=0.98)},
            "alone_matmul-all-reduce_bf16": {**PROBLEM, "schedules": schedules(fused=-0.1)}})
        self.assertEqual(bars["fused: efficiency, median of 3 of 162"], ("0.970", ">= 0.96", "yes"))
        self.assertEqual(bars["fused: efficiency, lowest of 3 of 162"], ("0.890", ">= 0.9", "**no**"))
        self.assertEqual(bars["pipelined parts=8: efficiency, median of 3 of 162"], ("0.800", ">= 0.85", "**no**"))
        self.assertEqual(bars["bf16, no link: fused over serial, lowest of 1 of 27"], ("0.952", ">= 0.99", "**no**"))
        self.assertEqual(bars["bf16, no link: what the collective leaves to gain: (product + collective) / product, "
                              "geometric mean of 1 of 27"], ("2.000", "", ""))

    def test_a_rival_without_such_a_product(self):
        why = "oneDNN 2.6.3 has no product of bf16 on this processor"
        rival = {**PROBLEM, "rival": "B", "rival_ms": None, "rival_refusal": why,
                 "plans": [{"plan": plan, "median_ms": 12, "over_rival": None} for plan in ("serial", "fused")]}
        results = self.results(**{"rival_matmul-all-reduce_bf16": [rival]})
        self.assertIn(f", beside {why}, ", results.conditions())
        self.assertEqual(results.table(keep.TABLES["rival"])[2][0][3:], ["none", "12", "12", "", ""])
        self.assertEqual(self.bars_of(results), {})

    def test_rivals_and_worlds(self):
        rival = {**PROBLEM, "rival": "B", "rival_ms": 12,
                 "plans": [{"plan": "serial", "median_ms": 12, "over_rival": 1},
                           {"plan": "fused", "median_ms": 10, "over_rival": 1.2}]}
        files = {"rival_matmul-all-reduce_bf16": [rival],
                 "worlds_matmul-all-reduce_bf16_3": {**PROBLEM, "ranks": 3, "schedules": schedules(fused=0.91)},
                 "worlds_matmul-all-reduce_bf16_8": {**PROBLEM, "ranks": 8, "schedules": schedules(fused=0.93)}}
        results = self.results(**files)
        bars = self.bars_of(results)
        self.assertEqual(bars["no link: fused over oneDNN and MPI, lowest of 1 of 54"], ("1.200", ">= 1", "yes"))
        self.assertEqual(bars["fused, 3, 4 and 8 ranks: efficiency, lowest of 2 of 27"], ("0.910", ">= 0.9", "yes"))
        self.assertIn("beside B", results.conditions())
        self.assertEqual([len(rows) for _, _, rows in results.tables()], [3, 1, 2])

    def test_one_row_is_the_middle_of_its_runs(self):
        runs = {f"row_matmul-all-reduce_bf16_{run}": {**PROBLEM, "m": 1, "t_gemm_ms": 0.01, "schedules": [
            {"plan": "fused", "median_ms": 0.01 + beyond / 1000}]} for run, beyond in enumerate((2.5, 40, 2.8), 1)}
        self.assertEqual(self.bars(**runs)["one row: fused beyond its product, µs, highest of 1"],
                         ("2.800", "<= 3", "yes"))
        self.assertEqual(self.results(**runs).table(keep.TABLES["row"])[2],
                         [["matmul_all_reduce", "bf16", "1 x 64 x 32", "2.800 (2.500 to 40.00)"]])
        slow = {f"{name}2": {**one, "t_gemm_ms": 0.005} for name, one in runs.items()}
        self.assertEqual(self.bars(**slow)["one row: fused beyond its product, µs, highest of 1"][2], "**no**")


if __name__ == "__main__":
    unittest.main()
