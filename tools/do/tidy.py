#!/usr/bin/env python3
"""Runs clang-tidy on several files at a time, and skips files that it has found clean.

    tools/do/tidy.py --build build/release --all|--changed [--below FOLDER]

A file was found clean with its text, that of all our headers it includes, its compile command and the .clang-tidy
files above it: a stamp below BUILD/../tidy is named by their hash. --changed takes the files that differ from the
merge base with origin/main (without one: from the commit before the last) and those that include one that does.
"""

import argparse
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIDY = "clang-tidy-19"
ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S*/cmake_pch\.hxx")
COMPLAINT = re.compile(r"^\S+:\d+:\d+: (?:error|warning): .*$", re.MULTILINE)


@functools.cache
def included(file: Path, build: Path) -> frozenset[Path]:
    """The file itself and every header of ours that it includes, directly or not."""
    found = {file}
    waiting = [file]
    while waiting:
        current = waiting.pop()
        for name in INCLUDE.findall(current.read_text(encoding="utf-8")):
            folders = [
                ROOT / "src",
                ROOT / "app",
                ROOT / "include",
                ROOT / "tests",
                build / "generated",
                current.parent,
            ]
            header = next((f / name for f in folders if (f / name).is_file()), None)
            if header and header not in found:
                found.add(header)
                waiting.append(header)
    return frozenset(found)


def git(*arguments: str) -> list[str]:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed() -> set[Path]:
    base = (
        git("merge-base", "origin/main", "HEAD")
        or git("rev-parse", "HEAD~1")
        or git("hash-object", "-t", "tree", "/dev/null")
    )
    if base == git("rev-parse", "HEAD"):  # a clone of main: the changes of the last commit
        base = git("rev-parse", "HEAD~1") or base
    names = git("diff", "--name-only", base[0]) + git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in names}


def key(entry: dict, build: Path) -> str:
    """A name for everything that clang-tidy's result depends on."""
    file = Path(entry["file"])
    settings = {folder / ".clang-tidy" for folder in file.parents if folder.is_relative_to(ROOT)}
    digest = hashlib.sha256(entry["command"].encode())
    for source in sorted(included(file, build) | {s for s in settings if s.exists()}):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def without_precompiled(entries: list[dict], folder: Path) -> list[dict]:
    """Clang can't read gcc's precompiled headers, and each file must include what it needs."""
    plain = [{**e, "command": PRECOMPILED.sub("", e["command"])} for e in entries]
    (folder / "compile_commands.json").write_text(json.dumps(plain))
    return plain


def tidy(entry: dict, build: Path, stamps: Path) -> list[str]:
    """The complaints, one per line; clang-tidy's explanations are printed."""
    stamp = stamps / key(entry, build)
    if stamp.exists():
        return []
    start = time.monotonic()
    run = subprocess.run(
        [TIDY, "-p", stamps, "--quiet", entry["file"]], capture_output=True, text=True
    )
    name = Path(entry["file"]).relative_to(ROOT)
    verdict = "clean" if run.returncode == 0 else "FAILED"
    print(f"{name}: {verdict}, {time.monotonic() - start:.1f} s", flush=True)
    if run.returncode == 0:
        stamp.touch()
        return []
    print(run.stdout, run.stderr, flush=True)
    complaints = COMPLAINT.findall(run.stdout)
    return [c.replace(f"{ROOT}/", "") for c in complaints] or [f"{name}: clang-tidy failed"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("--all", action="store_true")
    scope.add_argument("--changed", action="store_true")
    parser.add_argument("--below", type=Path, default=ROOT, help="leaves out sources elsewhere")
    arguments = parser.parse_args()
    below = arguments.below.resolve()
    build = arguments.build.resolve()
    stamps = build.parent / "tidy"
    stamps.mkdir(exist_ok=True)

    entries = without_precompiled(
        json.loads((build / "compile_commands.json").read_text()), stamps
    )
    # Clang has none of the options with which nvcc compiles kernels.
    sources = [(e, Path(e["file"])) for e in entries if not e["file"].endswith(".cu")]
    ours = [
        e for e, f in sources if f.is_relative_to(below) and not f.is_relative_to(build.parent)
    ]
    if arguments.changed:
        touched = changed()
        if not any(file.name == ".clang-tidy" for file in touched):
            ours = [e for e in ours if included(Path(e["file"]), build) & touched]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(pool.map(lambda entry: tidy(entry, build, stamps), ours))
    # A complaint about a header comes once for each file that includes it.
    print("\n".join(sorted(set(itertools.chain(*complaints)))))
    print(f"{complaints.count([])} of {len(ours)} files are clean")
    return 1 if any(complaints) else 0


if __name__ == "__main__":
    sys.exit(main())
