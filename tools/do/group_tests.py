#!/usr/bin/env python3
"""Runs tests of GoogleTest several in a process, where a program's start takes longer than most of them.

group_tests.py BUILD [CTEST_OPTIONS...]  writes BUILD/grouped: what ctest runs instead of the tests that it would choose
                                         in BUILD with these options. Tests that are not GoogleTest's stay as they are.
group_tests.py --run SECONDS WORDS PROGRAM TEST...
                                         runs one group; each test has so many seconds. The program may be several
                                         words: an emulator with its own. The output is GoogleTest's.
                                         A test that crashes or is late has failed, and those after it run in a new
                                         process, so every test gets its line of result.
"""

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

SIZE = 10  # tests of a group
NAME = "group"  # the first word of its name
# They fork ranks that must have as many threads as their parent; after another test had threads, they have one each.
ALONE = ("AutomaticPlans.AreTriedInTwoGroupsOfTheSameHosts", "ThreeHosts.HaveThePlansOfAllThree")
RUNS = re.compile(r"\[ RUN      \] (\S+)")
RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \((\d+) ms\)")


def program_of(test: dict) -> tuple[str, ...]:
    """The program, with the emulator before it, of a case of GoogleTest that ctest would run alone, else nothing."""
    words = test.get("command", [])
    name = "--gtest_filter=" + test["name"]
    return tuple(words[:words.index(name)]) if name in words and test["name"] not in ALONE else ()


def groups_of(tests: list[dict]) -> list[dict]:
    """The tests with as many as possible in groups, in the same order."""
    made = []
    numbers: dict[str, int] = {}
    for (program, properties), some in itertools.groupby(tests, lambda test: (program_of(test), properties_of(test))):
        some = list(some)
        if not program:
            made += some
            continue
        kept = {name: value for name, value in json.loads(properties).items() if name != "SKIP_REGULAR_EXPRESSION"}
        limit = kept.get("TIMEOUT", 120)
        for first in range(0, len(some), SIZE):
            names = [test["name"] for test in some[first:first + SIZE]]
            command = [sys.executable, "-B", str(Path(__file__).resolve()), "--run", str(limit), str(len(program)),
                       *program, *names]
            # The group ends itself; this is for a group that does not.
            values = kept | {"TIMEOUT": limit * (len(names) + 1)}
            short = Path(program[-1]).name
            numbers[short] = numbers.get(short, 0) + 1
            made.append({"name": f"{NAME} {short} {numbers[short]}", "command": command,
                         "properties": [{"name": name, "value": value} for name, value in values.items()]})
    return made


def properties_of(test: dict) -> str:
    return json.dumps({one["name"]: one["value"] for one in test.get("properties", [])}, sort_keys=True)


def in_cmake(value) -> str:
    text = ";".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"[==[{text}]==]"


def write(folder: Path, tests: list[dict]) -> None:
    lines = []
    for test in tests:
        name = in_cmake(test["name"])
        lines.append(f"add_test({name} {' '.join(map(in_cmake, test.get('command', ['NOT_BUILT'])))})")
        properties = " ".join(f"{one['name']} {in_cmake(one['value'])}" for one in test.get("properties", []))
        lines.append(f"set_tests_properties({name} PROPERTIES {properties})" if properties else "")
    folder.mkdir(exist_ok=True)
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Process:
    """The program, with the tests that are left."""

    def __init__(self, program: list[str], tests: list[str]):
        self.process = subprocess.Popen(
            [*program, "--gtest_filter=" + ":".join(tests), "--gtest_also_run_disabled_tests"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.left = tests
        self.running = None
        self.failed = False

    def follow(self, seconds: float) -> bool:
        """Print the output, until the program has ended, or a test, or the time before the first, takes too long."""
        output, ended, line = self.process.stdout.fileno(), os.pidfd_open(self.process.pid), b""
        try:
            deadline = time.monotonic() + seconds
            while ((left := deadline - time.monotonic()) > 0 and
                   (readable := select.select([output, ended], [], [], left)[0])):
                # Children may hold the pipe open, so the end of the program counts, once all that it said is read.
                if output not in readable:
                    return True
                if not (some := os.read(output, 1 << 16)):
                    self.process.wait(max(0, deadline - time.monotonic()))
                    return True
                sys.stdout.buffer.write(some)
                sys.stdout.flush()
                *lines, line = (line + some).split(b"\n")
                for each in lines:
                    if self.hear(each.decode(errors="replace")):
                        deadline = time.monotonic() + seconds
            return False
        except subprocess.TimeoutExpired:
            return False
        finally:
            os.close(ended)

    def hear(self, line: str) -> bool:
        if (found := RUNS.search(line)) and found[1] in self.left:
            self.running = found[1]
            return True
        if (found := RESULT.search(line)) and found[2] in self.left:
            self.left.remove(found[2])
            self.failed |= found[1] == "FAILED"
            self.running = None
            return True
        return False

    def end(self) -> int:
        """End the program and its children, if there are any."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.stdout.close()
        return self.process.wait()


def run_group(seconds: float, program: list[str], tests: list[str]) -> int:
    failed = False
    while tests:
        begin = time.monotonic()
        process = Process(program, tests)
        try:
            in_time = process.follow(seconds)
            status = process.process.wait() if in_time else None
        finally:
            process.end()
        said = f"ended with status {status}" if in_time else f"took longer than {seconds:g} s, and was ended"
        if tests:
            blamed = process.running or tests[0]
            if not process.running:
                print(f"\n[ RUN      ] {blamed}")
            tests.remove(blamed)
        elif status not in (0, 1) or (status == 1 and not process.failed):
            # Leaks are reported at the end.
            blamed = f"{Path(program[-1]).name}.ends"
            print(f"\n[ RUN      ] {blamed}")
        else:
            failed |= process.failed
            continue
        failed = True
        print(f"\n{blamed}: the program {said}")
        print(f"[  FAILED  ] {blamed} ({(time.monotonic() - begin) * 1000:.0f} ms)", flush=True)
    return failed


def main() -> int:
    if sys.argv[1:2] == ["--run"]:
        words, count = sys.argv[4:], int(sys.argv[3])
        return run_group(float(sys.argv[2]), words[:count], words[count:])
    build = Path(sys.argv[1])
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *sys.argv[2:]],
                             check=True, stdout=subprocess.PIPE)
    write(build / "grouped", groups_of(json.loads(listing.stdout)["tests"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
