#!/usr/bin/env python3
"""Checks that the Chinese documents are in step with the English ones.

    tools/check_translations.py [--root FOLDER]

Each page of docs/zh/ has the headings of its English page (their number and levels), the same blocks of code, the same
tables by rows and columns, the same figures (every number with a decimal point), and as often the same words in
backticks and links to the same files.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Iterator, NamedTuple

PAGES = {
    "README.md": "README.md",
    "start.md": "docs/start.md",
    "from-mindspeed-coc.md": "docs/guides/from-mindspeed-coc.md",
}
FIGURE = re.compile(r"\d+\.\d+")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\((?:[^)]*/)?([^/)#]*)(?:#[^)]*)?\)")  # the name of the file; anchors are translated


class Page(NamedTuple):
    headings: list[tuple[int, str]]  # levels and texts
    blocks: list[str]
    rows: list[int]  # of tables: how many columns each has
    figures: set[str]
    code: Counter[str]
    links: Counter[str]


def read(path: Path) -> Page:
    page = Page([], [], [], set(), Counter(), Counter())
    fenced = False
    text = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        if fenced or fence:
            if fence and not fenced:
                page.blocks.append("")
            page.blocks[-1] += line + "\n"
            fenced ^= fence
            continue
        text += line + "\n"
        if heading := re.match(r"(#+) (.*)", line):
            page.headings.append((len(heading[1]), heading[2]))
        if line.startswith("|"):
            page.rows.append(len(re.split(r"(?<!\\)\|", line)) - 2)
        page.figures.update(FIGURE.findall(line))
    page.code.update(" ".join(words.split()) for words in CODE.findall(text))
    page.links.update(LINK.findall(text))
    return page


def differences(english: Page, translated: Page) -> Iterator[str]:
    levels = [[level for level, _ in page.headings] for page in (english, translated)]
    if levels[0] != levels[1]:
        at = next((i for i, (a, b) in enumerate(zip(*levels)) if a != b), min(map(len, levels)))
        near = english.headings[min(at, len(english.headings) - 1)][1]
        yield f"headings differ from {near!r} on: {len(levels[0])} in English, {len(levels[1])} here"
    if len(english.blocks) != len(translated.blocks):
        yield f"{len(english.blocks)} blocks of code in English, {len(translated.blocks)} here"
    for number, (ours, theirs) in enumerate(zip(english.blocks, translated.blocks), start=1):
        if ours != theirs:
            yield f"block {number} differs, which begins in English with {ours.splitlines()[1]!r}"
    if english.rows != translated.rows:
        yield f"the tables differ: {len(english.rows)} rows in English, {len(translated.rows)} here"
    for figure in sorted(english.figures ^ translated.figures):
        yield f"{figure} is only in {'English' if figure in english.figures else 'Chinese'}"
    for what, ours, theirs in (
        ("`{}`", english.code, translated.code),
        ("a link to {}", english.links, translated.links),
    ):
        for name in sorted((ours - theirs) | (theirs - ours)):
            yield f"{what.format(name)}: {ours[name]} in English, {theirs[name]} here"


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that translations are in step.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    problems = [
        f"docs/zh/{name}: {problem}"
        for name, original in PAGES.items()
        for problem in differences(read(root / original), read(root / "docs/zh" / name))
    ]
    unknown = {path.name for path in (root / "docs/zh").glob("*.md")} - set(PAGES)
    problems += [f"docs/zh/{name}: name its English page in PAGES" for name in sorted(unknown)]
    print("\n".join(problems) if problems else "the translations are in step")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
