"""docs/pictures/history.py: the speed of each release follows from times beside its predecessor's."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def row(band, old, new):
    ratio = sorted(n / o for o, n in zip(old, new))[len(old) // 2]
    return {"table": "t", "band": band, "what": {"case": f"a case of {band}"},
            "values": {"old": old, "new": new, "new / old": ratio}}


class HistoryTest(unittest.TestCase):
    def draw(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, rows in files.items():
                Path(folder, name).write_text(json.dumps({"conditions": {}, "rows": rows}), encoding="utf-8")
            out = Path(folder, "history.svg")
            done = subprocess.run([sys.executable, "-B", ROOT / "docs/pictures/history.py", folder, out],
                                  capture_output=True, text=True, check=False, timeout=60)
            return done, out.read_text(encoding="utf-8") if out.exists() else ""

    def test_speeds_are_relative_to_the_first_release(self):
        first = [row("layers", [4.0] * 3, [4.4] * 3), row("one row", [1.0] * 3, [1.0] * 3)]
        second = [row("layers", [4.0] * 3, [2.0] * 3), row("one row", [1.0] * 3, [1.25] * 3)]
        third = [row("layers", [2.0] * 3, [1.0] * 3), row("new", [2.0, 1.0, 2.0, 1.0, 2.0], [1.0] * 5)]
        done, text = self.draw({"0.10.0.json": third, "0.9.0.json": second, "0.2.0.json": first})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r'text-anchor="middle">(.*?)<', text), ["0.2.0", "0.9.0", "0.10.0"])
        said = dict(reversed(one.split(" ", 1)) for one in re.findall(r">(\d\.\d\d [^<]*)<", text))
        self.assertEqual(said, {"all cases": "2.53", "layers": "4.00", "one row": "0.80", "new": "2.00"})
        height = {float(y1) - float(y2) for y1, y2 in re.findall(r'<line class="mean".*y1="(.*?)" y2="(.*?)"', text)}
        # The first release was slower than itself, and the third one's predecessor had noise.
        self.assertEqual(len(height - {0.0}), 2)
        self.assertEqual(len(re.findall("<polyline", text)), 4)

    def test_refuses_in_a_sentence(self):
        done, _ = self.draw({})
        self.assertEqual((done.returncode, done.stderr.endswith("has no figures\n")), (1, True))
        done, _ = self.draw({"latest.json": []})
        self.assertIn("the name of a file of figures is a version, such as 0.1.0.json", done.stderr)


if __name__ == "__main__":
    unittest.main()
