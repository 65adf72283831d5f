"""Shared by tests of plait bench OPERATOR: its output, whose figures are consistent."""

import json

from command import CommandTest


KEYS = ["op", "m", "n", "k", "ranks", "dtype", "weight", "out", "wire", "transport", "link",
        "t_gemm_ms", "t_comm_ms", "t_comm_cpu_ms", "ideal_ms", "bound_ms", "schedules", "machine"]
SCHEDULE_KEYS = ["name", "plan", "median_ms", "min_ms", "max_ms", "speedup", "overlap_efficiency",
                 "bits_equal"]


class OperatorCase(CommandTest):
    SIZE = ("--m", 40, "--n", 200, "--k", 96, "--repeat", 2)
    # Ranks that are processes wait longer for one another on a busy machine.
    IN_THREADS = (*SIZE, "--transport", "threads")

    def bench(self, op, *words):
        result = self.plait("bench", op, *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), (op, words))
        return result.stdout

    def json(self, op, *words):
        return json.loads(self.bench(op, *words, "--json", "-"))

    def check(self, found, op):
        self.assertEqual(list(found), KEYS)
        self.assertEqual(found["op"], op.replace("-", "_"))
        self.assertAlmostEqual(found["ideal_ms"], max(found["t_gemm_ms"], found["t_comm_ms"]))
        self.assertAlmostEqual(found["bound_ms"],
                               max(found["t_gemm_ms"] + found["t_comm_cpu_ms"], found["t_comm_ms"]))
        serial = found["schedules"][0]["median_ms"]
        for one in found["schedules"]:
            self.assertEqual(list(one), SCHEDULE_KEYS)
            self.assertTrue(one["bits_equal"], one)
            self.assertLessEqual(one["min_ms"], one["median_ms"])
            self.assertLessEqual(one["median_ms"], one["max_ms"])
            self.assertAlmostEqual(one["speedup"], serial / one["median_ms"])
            if one["overlap_efficiency"] is not None:
                self.assertAlmostEqual(one["overlap_efficiency"],
                                       (serial - one["median_ms"]) / (serial - found["ideal_ms"]))
