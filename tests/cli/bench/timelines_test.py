"""plait bench OPERATOR: timelines of what was measured."""

import json
import tempfile
import unittest
from pathlib import Path

from operator_case import OperatorCase


class TimelinesTest(OperatorCase):
    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            for verb in (["bench"], ["trace"]):
                page, perfetto = Path(folder) / "page.html", Path(folder) / "trace.json"
                result = self.plait(*verb, "all-gather-matmul", *self.SIZE, "--html", page, "--trace", perfetto,
                                    "--schedule", "fused")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertTrue(result.stdout.endswith(f"Timeline: {page}\nFor Perfetto: {perfetto}\n"))
                self.assertIn("<h1>all_gather_matmul, m=40 n=200 k=96, bf16 by bf16</h1>", page.read_text())
                labels = {event.get("name") for event in json.loads(perfetto.read_text())["traceEvents"]}
                self.assertTrue({"product", "take", "copy", "serial", "fused"} <= labels, labels)
                page.unlink()
                perfetto.unlink()


if __name__ == "__main__":
    unittest.main()
