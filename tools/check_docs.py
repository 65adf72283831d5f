#!/usr/bin/env python3
"""Checks that the documents tell the truth about the tree.

    tools/check_docs.py [--root FOLDER] [--plait BUILT_COMMAND]

Looks at the Markdown files at the root and below docs/ and examples/:
- links: the file exists, and so does the heading after '#';
- paths in backticks, such as `src/base/fd.h` or `tests/*/`: something is there;
- `sh` blocks: `./do VERB` and `plait VERB` name verbs that exist (the latter only with --plait);
- a `cpp` block after `<!-- file: examples/a.cc -->` is that file's text;
- no folders of somebody's machine, no trailing blanks.
"""

import argparse
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*<?(\S+?)>?\s*$")
CODE = re.compile(r"`([^`]+)`")
PATH = re.compile(r"(?:\./)?[\w.*{},-]+(?:/[\w.*{},-]+)+/?")
PLACEHOLDER = re.compile(r"(?<=/)[A-Z_]+(?=/)")  # `src/comm/NAME/`: any
MACHINE = re.compile(r"(?<![\w.~}])/(?:home|root|work|Users|mnt)/[\w.-]+")
TAG = re.compile(r"<!--\s*file:\s*(\S+)\s*-->")
VERB = re.compile(r"^verb_(\w+)\(\)", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class Block(NamedTuple):
    line: int
    language: str
    file: str  # from the tag on the line before, or empty
    text: str


class Document(NamedTuple):
    lines: list[str]  # as written
    prose: list[str]  # the same, with what is inside fences emptied
    blocks: list[Block]


def parse(text: str) -> Document:
    lines = text.splitlines()
    prose, blocks = [], []
    opened: Optional[re.Match] = None
    start = 0
    for number, line in enumerate(lines, start=1):
        fence = re.match(r"^ *(`{3,}|~{3,})\s*(\w*)", line)
        if opened is None and fence:
            opened, start = fence, number
        elif opened and fence and fence[1].startswith(opened[1]) and not fence[2]:
            tag = TAG.search(lines[start - 2]) if start > 1 else None
            body = "".join(f"{inner}\n" for inner in lines[start : number - 1])
            blocks.append(Block(start, opened[2], tag[1] if tag else "", body))
            opened = None
        elif opened is None:
            prose.append(line)
            continue
        prose.append("")
    return Document(lines, prose, blocks)


def anchors(document: Document) -> set[str]:
    """The headings of a document, spelled as links to them are."""
    found: set[str] = set()
    for line in document.prose:
        if heading := re.match(r"#+\s+(.*?)\s*#*$", line):
            slug = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            numbered = (f"{slug}-{n}" for n in itertools.count(1))
            found.add(slug if slug not in found else next(s for s in numbered if s not in found))
    return found


def expand(pattern: str) -> Iterator[str]:
    """a/{b,c}/d: a/b/d and a/c/d."""
    if braces := re.search(r"\{([^{}]*)\}", pattern):
        for choice in braces[1].split(","):
            yield from expand(pattern[: braces.start()] + choice + pattern[braces.end() :])
    else:
        yield pattern


class Checker:
    def __init__(self, root: Path, plait_verbs: Optional[set[str]]):
        self.root = root
        self.plait_verbs = plait_verbs
        self.folders = {p.name for p in root.iterdir() if p.is_dir()} - {"build", ".git"}
        self.modules = {p.name: p.parent for roof in ("src", "app") for p in (root / roof).glob("*/")}
        scripts = [root / "do", *root.glob("tools/do/*.sh")]
        self.do_verbs = {
            verb for s in scripts if s.exists() for verb in VERB.findall(s.read_text())
        }

    def check(self) -> list[str]:
        files = [
            *self.root.glob("*.md"),
            *self.root.glob("docs/**/*.md"),
            *self.root.glob("examples/**/*.md"),
        ]
        return [
            f"{file.relative_to(self.root)}:{problem}"
            for file in sorted(files)
            for problem in self.problems(file)
        ]

    def problems(self, file: Path) -> Iterator[str]:
        document = parse(file.read_text(encoding="utf-8"))
        for number, line in enumerate(document.lines, start=1):
            if line != line.rstrip():
                yield f"{number}: trailing blanks"
            if machine := MACHINE.search(line):
                yield f"{number}: {machine[0]} is a folder of somebody's machine"
        for number, line in enumerate(document.prose, start=1):
            for problem in itertools.chain(
                self.check_links(file, line), self.check_paths(file, line)
            ):
                yield f"{number}: {problem}"
        for block in document.blocks:
            yield from self.check_block(block)

    def check_links(self, file: Path, line: str) -> Iterator[str]:
        for match in LINK.finditer(CODE.sub("", line)):
            link = match[1] or match[2]
            if ELSEWHERE.match(link):
                continue
            path, _, anchor = link.partition("#")
            target = file.parent / path if path else file
            if path.startswith("/") or not target.exists():
                yield f"the link to {link} leads nowhere"
            elif anchor and target.suffix == ".md":
                if anchor not in anchors(parse(target.read_text(encoding="utf-8"))):
                    yield f"{link}: no such heading"

    def check_paths(self, file: Path, line: str) -> Iterator[str]:
        for code in CODE.findall(line):
            path = PLACEHOLDER.sub("*", re.sub(r":\d+(-\d+)?$", "", code))
            if not PATH.fullmatch(path):
                continue
            bases = self.bases(file, path.removeprefix("./"))
            for wanted in expand(path.removeprefix("./")):
                if bases and not any(next(base.glob(wanted.rstrip("/")), None) for base in bases):
                    yield f"`{wanted}` does not exist"

    def bases(self, file: Path, path: str) -> list[Path]:
        """The folders a path may be relative to; none where it does not look like a path of this repository."""
        head = path.split("/")[0]
        if head == "plait":
            is_header = path.endswith(".h")
            return (
                [self.root / "include", self.root / "build/release/generated"] if is_header else []
            )
        if head in self.folders:
            return [self.root, file.parent]
        return [self.modules[head]] if head in self.modules else []

    def check_block(self, block: Block) -> Iterator[str]:
        if block.file:
            source = self.root / block.file
            if not source.is_file():
                yield f"{block.line}: {block.file} does not exist"
            elif source.read_text(encoding="utf-8") != block.text:
                yield f"{block.line}: differs from {block.file}"
        if block.language not in {"sh", "bash", "shell", "console"}:
            return
        for offset, line in enumerate(block.text.replace("\\\n", "  ").splitlines(), start=1):
            for problem in self.check_commands(line):
                yield f"{block.line + offset}: {problem}"

    def check_commands(self, line: str) -> Iterator[str]:
        line = re.sub(r"(^|\s)#.*", "", line)
        for command in re.split(r"&&|\|\||[;|]|\s--\s", line):
            words = command.removeprefix("$ ").split()
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                del words[0]
            if words[:1] == ["./do"] and len(words) > 1:
                if words[1] not in self.do_verbs:
                    yield f"./do has no verb {words[1]}"
                del words[0]
            if words[:1] == ["plait"] and len(words) > 1 and self.plait_verbs is not None:
                if not words[1].startswith("-") and words[1] not in self.plait_verbs:
                    yield f"plait has no verb {words[1]}"


def verbs_of(plait: Path) -> set[str]:
    """The verbs that `plait --help` lists: the first words of its indented lines."""
    text = subprocess.run(
        [plait, "--help"], check=True, capture_output=True, text=True, timeout=20
    ).stdout
    return set(re.findall(r"^ +(?:plait )?([a-z][\w-]*)\b", text, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Checks that the documents tell the truth about the tree."
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--plait", type=Path, help="the built command, to know its verbs")
    arguments = parser.parse_args()
    verbs = verbs_of(arguments.plait) if arguments.plait else None
    errors = Checker(arguments.root, verbs).check()
    print("\n".join(errors) if errors else "the documents agree with the tree")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
