"""Shared by tests of plait bench matmul: its output as text and JSON."""

import json

from command import CommandTest


class MatmulCase(CommandTest):
    SIZE = ("--n", 200, "--k", 70, "--repeat", 2, "--threads", 1)

    def bench(self, *words):
        result = self.plait("bench", "matmul", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def json(self, *words):
        return json.loads(self.bench(*words, "--json", "-"))
