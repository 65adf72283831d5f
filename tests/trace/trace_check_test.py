"""tools/trace_check.py accepts timelines, refuses other files, and sums correctly."""

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import trace_check


def name(pid, tid=None, text="compute"):
    place = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    what = "process_name" if tid is None else "thread_name"
    return {"ph": "M", "name": what, **place, "args": {"name": text}}


def span(begin, end, label="matmul", lane="compute", tid=1):
    times = {"ts": begin, "dur": end - begin}
    return {"ph": "X", "name": label, "cat": lane, "pid": 0, "tid": tid, **times}


def flight(phase, at, number="1", lane="comm"):
    return {"ph": phase, "name": "chunk", "cat": lane, "pid": 0, "tid": 2, "ts": at, "id2": {"local": number}}


NAMES = [name(0, text="rank 0"), name(0, 1), name(0, 2, "comm"), name(0, 3, "wait")]
GOOD = NAMES + [
    span(0, 10, "outer"),
    span(0, 4.001, "inner"),
    span(4.001, 10, "inner"),
    span(10, 14, "next"),
    span(12, 20, "arrival", "wait", tid=3),
    flight("b", 1), flight("b", 2, "2"), flight("e", 9), flight("e", 9, "2"),
    flight("b", 0, "3", "compute"), flight("e", 20, "3", "compute"),  # a run's name, which is not work
    {"ph": "i", "s": "t", "name": "posted", "cat": "comm", "pid": 0, "tid": 2, "ts": 3},
    {"ph": "C", "name": "in flight", "pid": 0, "ts": 3, "args": {"value": 2}},
]


class TraceCheck(unittest.TestCase):
    def run_on(self, path, *options):
        """Calls the tool in this process, since a hundred new ones would take half a minute."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = trace_check.main([path, *options])
        return subprocess.CompletedProcess(path, status, out.getvalue(), err.getvalue())

    def run_tool(self, text, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(text)
        try:
            return self.run_on(file.name, *options)
        finally:
            os.unlink(file.name)

    def run_events(self, events, *options):
        return self.run_tool(json.dumps({"traceEvents": events}), *options)

    def assert_refused(self, done, sentence):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_a_good_timeline_is_added_up(self):
        done = self.run_events(GOOD, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["lane"]: row for row in json.loads(done.stdout)["rows"]}
        self.assertEqual(rows["compute"]["spans"], 4)
        self.assertEqual(rows["compute"]["busy_ns"], 14000)  # nested time counts once
        self.assertAlmostEqual(rows["compute"]["busy_share"], 0.7)
        self.assertEqual(rows["wait"]["busy_ns"], 8000)
        self.assertEqual(rows["wait"]["exposed_ns"], 6000)  # 12 to 14 us are after "next"
        self.assertEqual(rows["flight"]["spans"], 2)
        self.assertEqual(rows["flight"]["busy_ns"], 8000)  # 1 to 9 us; the second overlaps the first
        self.assertEqual(rows["flight"]["exposed_ns"], 0)

    def test_it_is_a_program(self):
        command = [sys.executable, trace_check.__file__, "none.json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "trace_check: none.json: No such file or directory\n")

    def test_people_get_a_table(self):
        text = json.dumps({"traceEvents": GOOD, "otherData": {"dropped": {"0": 7}}})
        done = self.run_tool(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 0 lost 7 older records", done.stdout)
        self.assertRegex(done.stdout, r"0 +wait +1 +8\.000 us +40\.0% +6\.000 us")

    def test_an_empty_timeline_is_one(self):
        self.assertEqual(self.run_events([]).returncode, 0)

    def test_what_is_no_json_is_refused(self):
        for text in ("", "{", "[1,", '{"traceEvents":[{"ph":"X"', "[" * 100000):
            self.assertEqual(self.run_tool(text).returncode, 1, text[:20])
        self.assert_refused(self.run_tool("[]"), "not a JSON object")
        self.assert_refused(self.run_tool("{}"), 'no list "traceEvents"')

    def test_a_missing_file_is_wrong_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.run_on(os.path.join(folder, "none.json")).returncode, 2)

    def test_every_needed_key_is_missed(self):
        for index, event in enumerate(GOOD):
            for key in event:
                events = copy.deepcopy(GOOD)
                del events[index][key]
                self.assertEqual(self.run_events(events).returncode, 1, f"{key} of {event}")

    def test_wrong_values_are_refused(self):
        wrong = [("ts", "0"), ("ts", True), ("ts", -1), ("ts", float("inf")), ("dur", -0.001)]
        wrong += [("dur", float("nan")), ("tid", 1.5), ("pid", "0"), ("name", 3), ("ph", "Z")]
        wrong += [("ph", ["X"]), ("args", []), ("ph", "b")]
        for key, value in wrong:
            events = copy.deepcopy(GOOD)
            events[len(NAMES)][key] = value
            self.assertEqual(self.run_events(events).returncode, 1, f"{key}: {value}")
        self.assert_refused(self.run_events(GOOD + [7]), f"event {len(GOOD)} is not an object")

    def test_spans_that_cross_are_refused(self):
        self.assert_refused(self.run_events(NAMES + [span(0, 5, "first"), span(4, 6, "second")]),
                            '"second" from 4000 to 6000 ns outlasts "first"')
        self.assertEqual(self.run_events(NAMES + [span(0, 5), span(4, 6, tid=2)]).returncode, 0)

    def test_flights_come_in_pairs(self):
        for events, sentence in (
            ([flight("b", 1)], "never ends"),
            ([flight("e", 1)], "never began"),
            ([flight("b", 1), flight("b", 1)], "begins twice"),
            ([flight("b", 2), flight("e", 1)], "never began"),
        ):
            self.assert_refused(self.run_events(NAMES + events), sentence)
        self.assertEqual(self.run_events(NAMES + [flight("e", 1), flight("b", 1)]).returncode, 0)

    def test_nameless_places_are_refused(self):
        lost = self.run_events(NAMES + [span(0, 1, tid=9)])
        self.assert_refused(lost, "track 9 of process 0 has no name")
        self.assert_refused(self.run_events(NAMES[1:] + [span(0, 1)]), "process 0 has no name")


if __name__ == "__main__":
    unittest.main()
