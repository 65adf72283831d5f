#!/usr/bin/env python3
"""Reads the output of `ctest --output-junit` or `pytest --junit-xml`.

count_tests.py REPORT...              prints "PASSED FAILED", without the tests that skipped themselves
count_tests.py --skipped REPORT...    prints why tests skipped themselves, and how many for each reason, one a line
count_tests.py --failed REPORT...     prints what each test that failed wrote last
count_tests.py --unexpected=PRESET REPORT...
                                      prints the tests whose reason tools/do/expected_skips.txt does not have
count_tests.py --not-again            reads `ctest --show-only=json-v1`, and prints which tests do not run again with
                                      fewer instructions, in a line for each reason
"""

import collections
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LINES = 60  # of a failed test's output
EXPECTED = Path(__file__).with_name("expected_skips.txt")
NO_REASON = "no reason given"
# The last line of a test in a group that group_tests.py ran.
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \((\d+) ms\)$", re.MULTILINE)
STATUS = {"OK": "run", "FAILED": "fail", "SKIPPED": "notrun"}
# Indexed by the labels of tests/CMakeLists.txt.
NOT_AGAIN = {
    "elsewhere": "their products and sums are those of tests that run again, in other programs, over other transports,"
                 " with lost ranks, or on more problems",
    "": "their code does not depend on the processor's instructions",
}


def skips_of(case) -> list[tuple[str, str]]:
    """Skipped tests and their reasons: a gtest case, or some of the tests of a Python file that ran."""
    how, name, said = state(case), case.get("name"), output(case)
    if how == "fail":
        return []
    if how != "run":
        skipped = case.find("skipped")  # pytest's has the reason
        reason = re.search(r": Skipped\n(.+)", said)
        told = reason[1].strip() if reason else skipped.get("message") if skipped is not None else None
        return [(name, told or NO_REASON)]
    # unittest -v writes "test_name (__main__.Class.test_name) ... skipped 'reason'", with the first line of the test's
    # description before the dots if there is one, and "OK (skipped=1)" at the end.
    found = re.findall(r"^(\w+) \(.*\)(?:\n.*)? \.\.\. skipped (['\"])(.*)\2$", said, re.MULTILINE)
    count = re.search(r"^OK \(.*\bskipped=(\d+)", said, re.MULTILINE)
    unread = max(0, int(count[1]) - len(found)) if count else 0
    return [(f"{name}.{test}", reason) for test, _, reason in found] + unread * [(name, NO_REASON)]


def is_expected(reason: str, preset: str) -> bool:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    texts = (reason, f"{preset}: {reason}")
    return any(re.fullmatch(line, text) for line in lines if line and line[0] != "#" for text in texts)


def state(case: ElementTree.Element) -> str:
    """The message of ctest, or the content of pytest's element."""
    if case.get("status") in ("run", "fail"):
        return case.get("status", "")
    if case.find("failure") is not None or case.find("error") is not None:
        return "fail"
    return "other" if case.get("status") or case.find("skipped") is not None else "run"


def output(case: ElementTree.Element) -> str:
    for part in ("failure", "error", "system-out"):
        if text := case.findtext(part):
            return text
    return ""


def tests_of(case: ElementTree.Element) -> list[ElementTree.Element]:
    """The tests of a group, or the test itself."""
    if not case.get("name", "").startswith("group "):
        return [case]
    tests, said, begin = [], output(case), 0
    for found in RESULT.finditer(said):
        test = ElementTree.Element("testcase", name=found[2], status=STATUS[found[1]], time=str(int(found[3]) / 1000))
        ElementTree.SubElement(test, "system-out").text = said[begin:found.end()]
        tests.append(test)
        begin = found.end()
    # A group that failed in another way, such as at a deadline of its own, has failed by its name.
    return tests if state(case) != "fail" or any(state(test) == "fail" for test in tests) else [*tests, case]


def programs_once(listing: dict) -> dict[str, dict[str, int]]:
    """Count each program's tests that do not run again, by their label."""
    programs: dict[str, dict[str, int]] = {label: collections.Counter() for label in NOT_AGAIN}
    for test in listing["tests"]:
        properties = test.get("properties", [])
        labels = " ".join(label for one in properties if one["name"] == "LABELS" for label in one["value"])
        if "kernels" in labels:
            continue
        program, *words = test["command"]
        # A case of gtest is listed by its program, other tests by their names without the number of ranks.
        is_case = bool(words) and words[0].startswith("--gtest_filter=")
        name = Path(program).name if is_case else re.sub(r"_\d+$", "", test["name"])
        programs["elsewhere" if "elsewhere" in labels else ""][name] += 1
    return programs


def main() -> int:
    if sys.argv[1:] == ["--not-again"]:
        for label, programs in programs_once(json.load(sys.stdin)).items():
            names = (f"{name} ({count})" if count > 1 else name for name, count in sorted(programs.items()))
            print(f"{NOT_AGAIN[label]}: {', '.join(names)}")
        return 0
    flags = [word for word in sys.argv[1:] if word.startswith("--")]
    reports = [Path(word) for word in sys.argv[1:] if not word.startswith("--")]
    cases = [test for report in reports if report.exists() for case in ElementTree.parse(report).iter("testcase")
             for test in tests_of(case)]
    skips = [skip for case in cases for skip in skips_of(case)]
    failed = [case for case in cases if state(case) == "fail"]
    if "--skipped" in flags:
        for reason, count in collections.Counter(reason for _, reason in skips).most_common():
            print(f"{reason} ({count})")
    elif flags and flags[0].startswith("--unexpected="):
        for name, reason in skips:
            if not is_expected(reason, preset=flags[0].partition("=")[2]):
                print(f"{name}: {reason}")
    elif "--failed" in flags:
        for case in failed:
            # The time tells a test that was ended at its deadline from one that found an error.
            print(f"--- {case.get('name')} failed after {float(case.get('time', 0)):.1f} s:",
                  *output(case).splitlines()[-LINES:], sep="\n")
    else:
        print(sum(state(case) == "run" for case in cases), len(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
