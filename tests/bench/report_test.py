"""bench/report.py: which rows count, the bars that are met, and the pages that hold tables."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import report

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "docs" / "lab"


def row(m, **values):
    return {"table": "Products", "what": {"M": str(m)}, "values": values}


def document(*rows, bars=(), **conditions):
    return {"what": "some", "conditions": {"date": "2026-11-26", **conditions}, "rows": list(rows), "bars": list(bars)}


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def files(self, *documents):
        files = [self.folder / f"{number}.json" for number, _ in enumerate(documents)]
        for file, found in zip(files, documents):
            report.write(file, found)
        return files

    def results(self, *documents):
        return report.Results(self.files(*documents))

    def test_the_median_of_repetitions_is_judged(self):
        rows = [{**row(1, share=[0.5, 0.96, 0.97]), "bar": {"at least": 0.95}},
                {**row(2, share=0.5), "bar": {"at least": 0.95}}, row(3, share=[])]
        self.assertEqual(self.results(document(*rows)).table("Products"),
                         ("Products", ["M", "share", "bar", "met"],
                          [["1", "0.960 (0.500 to 0.970)", ">= 0.95", "yes"], ["2", "0.500", ">= 0.95", "**no**"],
                           ["3", "", "", ""]]))

    def test_a_bar_may_be_about_any_value_and_has_its_unit(self):
        rows = [{**row(1, ours=31e-6, ratio=2.0), "unit": {"ours": "s"}, "bar": {"of": "ratio", "at most": 1.5}},
                {**row(2, ours=90.0), "unit": "s", "bar": {"at most": 360.0}}]
        self.assertEqual(self.results(document(*rows)).table("Products")[2],
                         [["1", "31.0 us", "2.000", "<= 1.5", "**no**"], ["2", "1.5 min", "", "<= 6.0 min", "yes"]])

    def test_bars_of_tables_select_and_count(self):
        bars = [{"what": "fused", "table": "Products", "value": "fused", "take": take, "due": 9, **more}
                for take, more in (("lowest", {"at least": 0.9}), ("median", {"where": {"M": ["1", "2"]}}),
                                   ("geometric mean", {"at most": 0.8}))]
        bars.append({"what": "missing", "table": "Products", "value": "other", "take": "highest"})
        rows = [row(1, fused=0.5), row(2, fused=0.98), row(3, fused=2.0), row(4, fused=None)]
        self.assertEqual(self.results(document(*rows, bars=bars)).tables()[0][2],
                         [["fused, lowest of 3 of 9", "0.500", ">= 0.9", "**no**"],
                          ["fused, median of 2 of 9", "0.740", "", ""],
                          ["fused, geometric mean of 3 of 9", "0.993", "<= 0.8", "**no**"]])

    def test_a_later_row_replaces_the_same_case(self):
        again = [document(row(1, fused=0.7), commit="b"), document(row(1, fused=0.8), commit="c")]
        results = self.results(document(row(1, fused=0.5), row(2, fused=0.6), commit="a"), again)
        self.assertEqual(results.table("Products")[2], [["1", "0.800"], ["2", "0.600"]])
        self.assertEqual(results.conditions(), "- 2026-11-26, commit a: some\n- 2026-11-26, commit b: some\n"
                                               "- 2026-11-26, commit c: some")

    def test_figures_have_four_digits(self):
        shown = [report.show(value, unit) for value, unit in
                 ((1295.2, ""), (102.34, ""), (0.0051, ""), (0.0, ""), (7, ""), (0.153, "%"), (20.0, "Gbit/s"))]
        self.assertEqual(shown, ["1295", "102.3", "0.005", "0.000", "7", "15.3 %", "20.00 Gbit/s"])

    def test_a_page_is_updated_between_its_marks(self):
        page = self.folder / "page.md"
        page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        command = [sys.executable, "-B", report.__file__, "--update", page, *self.files(document(row(1, fused=0.5)))]
        subprocess.run(command, check=True)
        self.assertEqual(page.read_text(), f"before\n{report.BEGIN}\n2026-11-26: some\n\n## Products\n\n| M | fused |\n"
                                           f"|---|---:|\n| 1 | 0.500 |\n{report.END}\nafter\n")
        page.write_text("no marks\n")
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has no place for the tables", refused.stderr)

    def test_pages_hold_the_tables_of_the_stored_files(self):
        """A page whose files are in docs/ holds what they give."""
        checked = 0
        for page in sorted(LAB.glob("*.md")):
            text = page.read_text(encoding="utf-8")
            for pattern in re.findall(r"^bench/report\.py --update \S+ (docs/\S+)", text, re.MULTILINE):
                block = report.Results(sorted(ROOT.glob(pattern))).markdown()
                self.assertEqual(report.updated(text, block), text, page.name)
                checked += 1
        self.assertGreater(checked, 0)


if __name__ == "__main__":
    unittest.main()
