#!/usr/bin/env python3
"""Checks that comments and documents are in plain English.

    tools/check_words.py [FILE...]

Looks at the comments of C++, Python, CMake and shell files, at docstrings, those of stubs too, and at Markdown's prose,
of all files that git knows, and refuses what makes a sentence need a second reading:
- a comment or docstring that opens with "Of", "That", "So", "The same", "As", "What", "Whether", "Where", "By" or
  "In which": say whole what it is about;
- a comment behind code of C++ that opens with "what", "whether", "where" or "in which". A label such as "by rank" is
  allowed there;
- nobody, somebody, everybody, whoever, whom: name the rank, the thread, the caller, the owner.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MARKS = {
    **dict.fromkeys((".cc", ".h", ".cu", ".cuh"), "//"),
    **dict.fromkeys((".py", ".pyi", ".sh", ".cmake", "CMakeLists.txt", "do"), "#"),
}
OPENING = re.compile(r"(?:Of|That|So|The same|As)\b(?! (?:is|was)\b)|(?:What|Whether|Where|By|In which)\b")
OPENING_BEHIND_CODE = re.compile(r"(?:what|whether|where|in which)\b")
ANIMATE = re.compile(r"\b(?:nobody|somebody|everybody|whoever|whomever|whom)\b", re.IGNORECASE)


class Found(NamedTuple):
    line: int
    why: str


class Sentence(NamedTuple):
    line: int
    words: str
    behind_code: bool = False


def comments(text: str, mark: str) -> Iterator[Sentence]:
    """Each comment, joined over its lines, with the number of its first line."""
    start, words = 0, []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        # A mark inside of a string is followed by something other than a blank.
        match = re.search(rf"(?:^|\s){re.escape(mark)} (.*)", line)
        alone = match is not None and not line[: match.start()].strip()
        if words and not alone:
            yield Sentence(start, " ".join(words))
            words = []
        if alone:
            if not words:
                start = number
            words.append(match[1].strip())
        elif match is not None:
            yield Sentence(number, match[1].strip(), behind_code=mark == "//")


def docstrings(text: str) -> Iterator[Sentence]:
    """Each docstring of a Python file, also one below an attribute, with the number of its first line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield Sentence(node.lineno, inspect.cleandoc(words))


def faults_of_code(kind: str, sentences: Iterator[Sentence]) -> Iterator[Found]:
    for line, words, behind_code in sentences:
        if OPENING.match(words) or (behind_code and OPENING_BEHIND_CODE.match(words)):
            yield Found(line, f'a {kind} opens with "{words[:30]}"')
        if kind == "comment" and (word := ANIMATE.search(words)):
            yield Found(line, f'a comment says "{word[0]}"')


def faults_of_prose(text: str) -> Iterator[Found]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (word := ANIMATE.search(re.sub(r"`[^`]*`", "", line))):
            yield Found(number, f'"{word[0]}"')


def faults_of(path: Path) -> Iterator[Found]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from faults_of_prose(text)
    elif mark := MARKS.get(path.name, MARKS.get(path.suffix)):
        yield from faults_of_code("comment", comments(text, mark))
        if path.suffix in (".py", ".pyi"):
            yield from faults_of_code("docstring", docstrings(text))


def main() -> int:
    names = sys.argv[1:] or subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    count = 0
    for path in (ROOT / name for name in names if name):
        if path.is_file():
            for found in faults_of(path):
                count += 1
                print(f"{path.relative_to(ROOT)}:{found.line}: {found.why}")
    print(f"{count} sentences to say otherwise" if count else "the words are plain")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
