"""plait predict: timelines of predicted operators."""

import json
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from predict_case import PredictCase


class TimelineTest(PredictCase):
    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, page, picture = (Path(folder) / name for name in ("trace.json", "page.html", "picture.svg"))
            self.predict("matmul-reduce-scatter", *self.SIZE, "--ranks", 2, "--trace", trace, "--html", page,
                         "--svg", picture)
            events = json.loads(trace.read_text())["traceEvents"]
            names = {event["name"] for event in events}
            self.assertLessEqual({"product", "sum", "chunk", "serial", "fused"}, names)
            self.assertEqual({event["pid"] for event in events}, {0, 1})
            self.assertIn("Predicted: 2 ranks, h100", page.read_text())
            ElementTree.fromstring(picture.read_text())


if __name__ == "__main__":
    unittest.main()
