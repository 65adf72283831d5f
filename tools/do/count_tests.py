#!/usr/bin/env python3
"""Reads what `ctest --output-junit` or `pytest --junit-xml` wrote.

count_tests.py REPORT            prints "PASSED FAILED", without the tests that skipped themselves
count_tests.py --skipped REPORT  prints the latter, one a line
count_tests.py --failed REPORT   prints what each test that failed wrote last
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LINES = 60  # of a failed test's output


def state(case: ElementTree.Element) -> str:
    """ctest's own word, or what pytest puts into the element."""
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


def main() -> int:
    *flags, report = sys.argv[1:]
    cases = list(ElementTree.parse(report).iter("testcase")) if Path(report).exists() else []
    passed = [case for case in cases if state(case) == "run"]
    failed = [case for case in cases if state(case) == "fail"]
    if "--skipped" in flags:
        for case in cases:
            if case not in passed and case not in failed:
                print(case.get("name"))
    elif "--failed" in flags:
        for case in failed:
            # How long it took tells a test that was ended at its deadline from one that found something.
            print(f"--- {case.get('name')} failed after {float(case.get('time', 0)):.1f} s:",
                  *output(case).splitlines()[-LINES:], sep="\n")
    else:
        print(len(passed), len(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
