#!/usr/bin/env python3
"""Reads what `ctest --output-junit` wrote.

    count_tests.py REPORT            prints "PASSED FAILED", without the tests that skipped themselves
    count_tests.py --skipped REPORT  prints the latter, one a line
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def main() -> int:
    *flags, report = sys.argv[1:]
    cases = ElementTree.parse(report).getroot().findall("testcase") if Path(report).exists() else []
    states = [(case.get("name"), case.get("status")) for case in cases]
    if "--skipped" in flags:
        print("".join(f"{name}\n" for name, status in states if status not in {"run", "fail"}), end="")
    else:
        print(sum(s == "run" for _, s in states), sum(s == "fail" for _, s in states))
    return 0


if __name__ == "__main__":
    sys.exit(main())
