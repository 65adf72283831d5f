#!/usr/bin/env python3
"""Compares the bits of results with those that are on file, tests/verify/digests.txt.

    tools/check_digests.py COMMAND...             e.g. build/release/app/cli/plait, after an emulator
    tools/check_digests.py --unlike COMMAND...    checks that every line has other bits, and that no result is wrong
    tools/check_digests.py --make COMMAND...      writes the file's digests anew

A line of the file is a digest and the options with which `COMMAND verify --digest` prints it. They are made on x86 by
PLAIT_ISA=avx2, and hold on every processor that multiplies and adds in one instruction. Exit status: 1 for bits that
are not as expected, 2 for a command that fails.
"""

import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parent.parent / "tests/verify/digests.txt"
OPTIONS = ("--make", "--unlike")


def digest(command: list[str], options: list[str]) -> str:
    run = subprocess.run([*command, "verify", "--digest", *options], stdout=subprocess.PIPE, text=True, timeout=600)
    word, _, found = run.stdout.rstrip("\n").rpartition("\n")[2].partition(" ")
    if run.returncode != 0 or word != "digest":
        sys.stdout.write(run.stdout)
        print(f"{' '.join(command)} verify {' '.join(options)} printed no digest (status {run.returncode})")
        sys.exit(2)
    return found


def main() -> int:
    command = [word for word in sys.argv[1:] if word not in OPTIONS]
    asked = sys.argv[1 : len(sys.argv) - len(command)]
    if not command:
        sys.exit(__doc__)
    lines, wrong = [], 0
    for line in FILE.read_text().splitlines():
        before, *options = line.split() or [""]
        if options and before != "#":
            after = digest(command, options)
            wrong += (before == after) == ("--unlike" in asked)
            print(f"{line}: {'the same' if before == after else after}", flush=True)
            line = " ".join([after, *options])
        lines.append(line)
    if "--make" in asked:
        FILE.write_text("\n".join(lines) + "\n")
        return 0
    if wrong:
        print(f"{wrong} digests are {'those' if '--unlike' in asked else 'not those'} of {FILE.name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
