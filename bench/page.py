"""Shared by the reports: figures and their bars, tables for a terminal and for a page in Markdown, and the page."""

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import Callable

Table = tuple[str, list[str], list[list[str]]]  # title, columns, rows


def marks(folder: str) -> tuple[str, str]:
    """The lines in a page between which the tables of a folder's report are."""
    return f"<!-- begin: bench/{folder}/report.py -->", f"<!-- end: bench/{folder}/report.py -->"


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def met(holds: bool) -> str:
    return "yes" if holds else "**no**"


def markdown(conditions: str, tables: list[Table]) -> str:
    lines = [conditions, ""]
    for title, columns, rows in tables:
        lines += [f"## {title}", "", "| " + " | ".join(columns) + " |"]
        lines += ["|---|" + "---:|" * (len(columns) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    return "\n".join(lines)


def text(conditions: str, tables: list[Table]) -> str:
    lines = []
    for title, columns, rows in tables:
        table = [columns] + [[cell.replace("*", "") for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*table)]
        lines += ["", title, ""]
        for cells in table:
            first = cells[0].ljust(widths[0])
            rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
            lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join([*lines, "", conditions])


def update(page: Path, begin: str, end: str, block: str) -> None:
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{page} has no place for the tables; it needs {begin} and {end}, each on a line")
    page.write_text(f"{before}{begin}\n{block}{end}{after}", encoding="utf-8")


def main(folder: str, read: Callable, shown: slice = slice(None)) -> int:
    """The command line of a folder's report. `shown`: the tables that are printed on a terminal."""
    parser = argparse.ArgumentParser(description=f"Sums up the results of bench/{folder}.")
    parser.add_argument("--markdown", action="store_true", help="print all tables as Markdown")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="put the tables into this page")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    results = read(arguments.files)
    tables = results.tables()
    if arguments.update:
        update(arguments.update, *marks(folder), markdown(results.conditions(), [t for t in tables if t[2]]))
    elif arguments.markdown:
        print(markdown(results.conditions(), [t for t in tables if t[2]]))
    else:
        print(text(results.conditions(), [t for t in tables[shown] if t[2]]))
    return 0
