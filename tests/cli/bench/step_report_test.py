"""plait bench layer and plait bench model: their files."""

import json
import tempfile
import unittest
from pathlib import Path

from step_case import StepCase


class StepReportTest(StepCase):
    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            page, picture, trace = (Path(folder) / name for name in ("page.html", "picture.svg", "trace.json"))
            self.bench("model", "llama2-7b", *self.SMALL, "--html", page, "--svg", picture, "--trace", trace,
                       "--plan", "fused")
            self.assertIn("llama2-7b, 1 of 32 layers, widths x 0.03125, 50 tokens, bf16", page.read_text())
            self.assertTrue("product: weight gradient" in page.read_text())
            self.bench("model", "llama2-7b", *self.SMALL, "--html", page, "--plan", "fused", "--batch", 2,
                       "--wire", "bf16", "--no-sequence-parallel", "--stand-in", 0.5)
            self.assertIn("100 tokens in 2 sequences, bf16, wire bf16, not sequence parallel, stand-in 0.5",
                          page.read_text())
            self.assertIn("<svg", picture.read_text())
            names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
            self.assertLessEqual({"serial", "fused", "weight gradient"}, names)

    def test_all_ranks_fail_where_the_figures_cannot_be_written(self):
        for figures in ([], ["--json", "-"]):
            self.assert_all_ranks_fail_where_rank_0_cannot_write(
                "bench", "layer", "row", "--m", 8, "--n", 64, "--k", 64, "--repeat", 1, "--plan", "fused", *figures)


if __name__ == "__main__":
    unittest.main()
