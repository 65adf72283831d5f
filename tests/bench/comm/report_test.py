"""report.py: the run of each row, the targets that are met, and the update of a page."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import report


def run(title, times, links=()):
    races = [
        {
            "what": what,
            "bytes": size,
            "contenders": {who: {"median_ns": ns, "kept": 9} for who, ns in contenders.items()},
        }
        for (what, size), contenders in times.items()
    ]
    machine = {"processor": "A", "processors": 2, "kernel": "6.1", "compiler": "12"}
    return {
        "title": title,
        "date": "2026-11-21",
        "machine": machine,
        "load": [1.0, 2.0],
        "races": races,
        "links": list(links),
    }


ALONE = run("plait: 2 ranks", {("mailbox, round trip", 64): {"plait": 280, "bare": 250, "memcpy": 2}})
SLOW_MPI = run("plait and Open MPI v4: x", {("all_reduce", 65536): {"plait": 5000, "MPI": 20000}})
FAST_MPI = run("plait and Open MPI v4: x", {("all_reduce", 65536): {"plait": 7000, "MPI": 10000}})


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def files(self, *runs):
        paths = [self.folder / f"{i}.json" for i in range(len(runs))]
        for path, content in zip(paths, runs):
            path.write_text(json.dumps(content))
        return paths

    def test_the_faster_mpi_is_the_opponent(self):
        for runs in ([ALONE, SLOW_MPI, FAST_MPI], [FAST_MPI, SLOW_MPI, ALONE]):
            pair = report.Results(self.files(*runs)).pair("all_reduce", 65536)
            self.assertEqual((pair.ours.us, pair.theirs.us), (7.0, 10.0))

    def test_promises_say_what_is_met(self):
        rows = report.Results(self.files(ALONE, FAST_MPI)).promises()
        self.assertEqual(
            [(row[0], row[1], row[3]) for row in rows],
            [
                ("round trip of 64 B, µs", "0.28", "yes"),
                ("all_reduce, 64 KiB, µs", "7.00", "**no**"),
                ("all_reduce, 64 KiB, plait/MPI", "0.70", "**no**"),
            ],
        )

    def test_times_that_were_all_disturbed_are_marked(self):
        shown = [report.us(report.Time(*time)) for time in [(123.4,), (7.123,), (0.012, False)]]
        self.assertEqual(shown, ["123", "7.12", "~0.012"])

    def test_sizes(self):
        shown = [report.size_text(size) for size in (0, 64, 1024, 65536, 8 << 20)]
        self.assertEqual(shown, ["0 B", "64 B", "1 KiB", "64 KiB", "8 MiB"])

    def test_a_page_is_updated_between_its_marks(self):
        page = self.folder / "page.md"
        begin, end = report.page.marks("comm")
        page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
        arguments = ["report.py", "--update", page, *self.files(ALONE)]
        with mock.patch.object(sys, "argv", list(map(str, arguments))):
            report.main()
        text = page.read_text()
        self.assertTrue(text.startswith(f"before\n{begin}\n2026-11-21: A, 2 processors"))
        self.assertTrue(text.endswith(f"{end}\nafter\n"))
        self.assertNotIn("old", text)

    def test_without_mpi_the_rest_is_there(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            arguments = ["report.py", "--markdown", *self.files(ALONE)]
            with mock.patch.object(sys, "argv", list(map(str, arguments))):
                report.main()
        self.assertIn("| round trip | 64 B | 0.28 | 0.25 | 0.002 |", out.getvalue())
        self.assertNotIn("Collectives", out.getvalue())


if __name__ == "__main__":
    unittest.main()
