#!/usr/bin/env python3
"""Writes plait/_native.pyi, the types of the native module, which must be installed.

make_stub.py          writes it
make_stub.py --check  fails where it is not what would be written, and shows the difference
"""

import difflib
import re
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

import plait._native

STUB = Path(__file__).parent.parent / "python" / "plait" / "_native.pyi"
HEADER = "# Written by tools/make_stub.py.\n\nfrom plait._typing import Array\n"


def make() -> str:
    """Return what nanobind knows, where every array is whatever speaks DLPack."""
    generator = StubGen(plait._native, include_private=True, quiet=True)
    generator.put(plait._native)
    text = generator.get()
    text = re.sub(r"Annotated\[\w+, dict\(writable=False\)\]", "Array", text)
    text = re.sub(r"\bNDArray\b", "Array", text)
    text = re.sub(r"from numpy.typing import .*\n\n?", "", text)
    text = re.sub(r"from typing import (.*)", _without_annotated, text)
    return HEADER + text.rstrip() + "\n"


def _without_annotated(line: re.Match[str]) -> str:
    names = [name for name in line[1].split(", ") if name != "Annotated"]
    return f"from typing import {', '.join(names)}"


def main() -> int:
    """Write or compare."""
    made = make()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(made)
        return 0
    there = STUB.read_text()
    sys.stdout.writelines(
        difflib.unified_diff(
            there.splitlines(True),
            made.splitlines(True),
            str(STUB),
            "what tools/make_stub.py writes",
        )
    )
    return int(made != there)


if __name__ == "__main__":
    sys.exit(main())
