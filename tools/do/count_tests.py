#!/usr/bin/env python3
"""Reads what `ctest --output-junit` wrote.

count_tests.py REPORT            prints "PASSED FAILED", without the tests that skipped themselves
count_tests.py --skipped REPORT  prints the latter, one a line
count_tests.py --failed REPORT   prints what each test that failed wrote last
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LINES = 60  # of a failed test's output


def main() -> int:
    *flags, report = sys.argv[1:]
    cases = ElementTree.parse(report).getroot().findall("testcase") if Path(report).exists() else []
    passed = [case for case in cases if case.get("status") == "run"]
    failed = [case for case in cases if case.get("status") == "fail"]
    if "--skipped" in flags:
        for case in cases:
            if case not in passed and case not in failed:
                print(case.get("name"))
    elif "--failed" in flags:
        for case in failed:
            output = (case.findtext("system-out") or "").splitlines()
            # How long it took tells a test that was ended at its deadline from one that found something.
            print(f"--- {case.get('name')} failed after {float(case.get('time', 0)):.1f} s:", *output[-LINES:],
                  sep="\n")
    else:
        print(len(passed), len(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
