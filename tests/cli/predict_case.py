"""Shared by tests of plait predict: its output as text and JSON, and its refusals."""

import json

from command import CommandTest


class PredictCase(CommandTest):
    SIZE = ("--m", 4096, "--n", 4096, "--k", 4096)

    def predict(self, *words):
        result = self.plait("predict", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def json(self, *words):
        return json.loads(self.predict(*words, "--json", "-"))

    def refusal(self, *words):
        result = self.plait("predict", *words)
        self.assertEqual((result.returncode, result.stdout), (2, ""), words)
        self.assertEqual(result.stderr.count("\n"), 1)
        return result.stderr
