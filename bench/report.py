#!/usr/bin/env python3
"""Shows what benchmarks have measured as tables, on a terminal or in a page of docs/.

    bench/report.py build/bench/network.json
    bench/report.py --markdown build/bench/comm*.json
    bench/report.py --update docs/lab/overlap.md docs/figures/overlap/*.json

A file is one document, or a list of them. All benchmarks write the same kind:

    {"what": "over links in bf16",                                 optional; it is written after the conditions
     "conditions": {"date": "2026-11-26", "processor": "...", "commit": "...", "load": 1.6, "command": "..."},
     "rows": [{"table": "Products", "what": {"M": "512"}, "values": {"ours": [21.5, 22], "ratio": 1.04},
               "unit": {"ours": "ms"}, "bar": {"of": "ratio", "at least": 1}}],
     "bars": [{"what": "ratio", "table": "Products", "value": "ratio", "where": {"M": ["512", "1024"]},
               "take": "lowest", "at least": 0.97, "due": 27}]}

`what` says which case a row is. A later row of the same table and case replaces an earlier one. Several values are
repetitions: their median counts, and the range is shown. `unit` is one for all values, or one for each. A bar on a row
is about that row. The other bars are about all rows of a table that `where` selects; `due` is how many rows a complete
measurement has.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any, Callable

Table = tuple[str, list[str], list[list[str]]]  # title, columns, rows
BEGIN, END = "<!-- begin: bench/report.py -->", "<!-- end: bench/report.py -->"


def mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


# The statistics that a bar may show of its values.
TAKES: dict[str, Callable[[list[float]], float]] = {
    "lowest": min,
    "highest": max,
    "median": statistics.median,
    "geometric mean": mean,
}


def middle(value: Any) -> Any:
    """Return the median of repetitions, and any other value as it is."""
    if not isinstance(value, list):
        return value
    return statistics.median(value) if value else None


def show_number(value: float) -> str:
    """Write a number with four figures, of which at most three are decimals."""
    if isinstance(value, int):
        return str(value)
    digits = max(0, min(3, 3 - math.floor(math.log10(abs(value) or 1))))
    return f"{value:.{digits}f}"


def show(value: Any, unit: str = "") -> str:
    """Write a value; seconds get a smaller or larger unit where that is shorter."""
    if value is None or isinstance(value, str):
        return value or ""
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit != "s":
        return f"{show_number(value)} {unit}".rstrip()
    if value < 1e-3:
        return f"{value * 1e6:.1f} us"
    if value < 0.1:
        return f"{value * 1e3:.2f} ms"
    return f"{value:.2f} s" if value < 60 else f"{value / 60:.1f} min"


def show_bar(bar: dict[str, Any], value: float | None, unit: str = "") -> list[str]:
    """Return the bar, and whether the value keeps it."""
    for name, sign in ("at least", ">="), ("at most", "<="):
        if bar.get(name) is not None and value is not None:
            met = value >= bar[name] if name == "at least" else value <= bar[name]
            limit = show(bar[name], unit) if unit in ("s", "%") else f"{bar[name]:g}"
            return [f"{sign} {limit}", "yes" if met else "**no**"]
    return ["", ""]


def show_conditions(conditions: dict[str, Any]) -> str:
    """Return the conditions in one line; a day and a processor need no name."""
    forms = {"date": "{1}", "processor": "{1}", "command": "`{1}`"}
    return ", ".join(forms.get(name, "{0} {1}").format(name, value) for name, value in conditions.items())


class Results:
    """The documents of some files, and their rows and bars by what they are of."""

    def __init__(self, files: list[Path]) -> None:
        self.documents: list[dict[str, Any]] = []
        for file in files:
            found = json.loads(file.read_text(encoding="utf-8"))
            self.documents += found if isinstance(found, list) else [found]
        self.rows = {
            (row["table"], *row["what"].items()): row for found in self.documents for row in found["rows"]
        }
        bars = (bar for found in self.documents for bar in found.get("bars", []))
        self.bars = {(bar["what"], bar["take"]): bar for bar in bars}

    def conditions(self) -> str:
        """Return the conditions, a line each, with what was measured under them."""
        found: dict[str, list[str]] = {}
        for document in self.documents:
            found.setdefault(show_conditions(document["conditions"]), []).append(document.get("what", ""))
        lines = ["- " + ": ".join(filter(None, (when, ", ".join(filter(None, what))))) for when, what in found.items()]
        return "\n".join(sorted(lines)) if len(lines) > 1 else "".join(lines).removeprefix("- ")

    def bar(self, bar: dict[str, Any]) -> list[str] | None:
        """Return a bar as text; None if no row has its value."""
        where = {name: one if isinstance(one, list) else [one] for name, one in bar.get("where", {}).items()}
        values = [
            middle(row["values"].get(bar["value"]))
            for row in self.rows.values()
            if row["table"] == bar["table"] and all(row["what"].get(name) in known for name, known in where.items())
        ]
        values = [value for value in values if value is not None]
        if not values:
            return None
        due = f" of {bar['due']}" if len(values) < bar.get("due", 0) else ""
        value = TAKES[bar["take"]](values)
        unit = bar.get("unit", "")
        return [f"{bar['what']}, {bar['take']} of {len(values)}{due}", show(value, unit), *show_bar(bar, value, unit)]

    def table(self, title: str) -> Table:
        """Return a table; columns for bars are there if a row has one."""
        rows = [row for row in self.rows.values() if row["table"] == title]
        names = list(dict.fromkeys(name for row in rows for name in row["what"]))
        columns = list(dict.fromkeys(name for row in rows for name in row["values"]))
        barred = ["bar", "met"] if any("bar" in row for row in rows) else []
        return title, names + columns + barred, [self.cells(row, names, columns, bool(barred)) for row in rows]

    @staticmethod
    def cells(row: dict[str, Any], names: list[str], columns: list[str], barred: bool) -> list[str]:
        """Return a row as text."""

        def unit(column: str) -> str:
            of_row = row.get("unit", "")
            return of_row.get(column, "") if isinstance(of_row, dict) else of_row

        def cell(column: str) -> str:
            value = row["values"].get(column)
            shown = show(middle(value), unit(column))
            if isinstance(value, list) and len(value) > 1:
                shown += f" ({show(min(value), unit(column))} to {show(max(value), unit(column))})"
            return shown

        bar = row.get("bar", {})
        of = bar.get("of", columns[0])
        judged = show_bar(bar, middle(row["values"].get(of)), unit(of)) if barred else []
        return [*(row["what"].get(name, "") for name in names), *map(cell, columns), *judged]

    def tables(self) -> list[Table]:
        """Return all tables, the bars first."""
        bars = [row for row in map(self.bar, self.bars.values()) if row]
        titles = dict.fromkeys(row["table"] for row in self.rows.values())
        promised = [("What was promised", ["figure", "measured", "bar", "met"], bars)] if bars else []
        return promised + [self.table(title) for title in titles]

    def markdown(self) -> str:
        """Return everything for a page."""
        lines = [self.conditions(), ""]
        for title, columns, rows in self.tables():
            lines += [f"## {title}", "", "| " + " | ".join(columns) + " |"]
            lines += ["|---|" + "---:|" * (len(columns) - 1)]
            lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        return "\n".join(lines)

    def text(self) -> str:
        """Return everything for a terminal."""
        lines = []
        for title, columns, rows in self.tables():
            cells = [columns] + [[cell.replace("*", "") for cell in row] for row in rows]
            widths = [max(map(len, column)) for column in zip(*cells)]
            lines += ["", title, ""]
            for row in cells:
                rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
                lines.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
        return "\n".join([*lines, "", self.conditions()])


def write(file: Path, documents: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write a document, or several, with a row on each line."""
    several = isinstance(documents, list)
    texts = []
    for found in documents if several else [documents]:
        parts = []
        for name, value in found.items():
            if isinstance(value, list):
                value = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in value)
                parts.append(f'"{name}": [\n  {value}]')
            else:
                parts.append(f'"{name}": {json.dumps(value, ensure_ascii=False)}')
        texts.append("{" + ",\n ".join(parts) + "}")
    text = ",\n".join(texts)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[{text}]\n" if several else f"{text}\n", encoding="utf-8")


def updated(text: str, block: str) -> str | None:
    """Return the text of a page with this block between its marks; None if it has none."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    return f"{before}{BEGIN}\n{block}{END}{after}" if found and closed else None


def main() -> int:
    """Show the files that are given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="put the tables into this page")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    results = Results(sorted(arguments.files))
    if not arguments.update:
        print(results.markdown() if arguments.markdown else results.text())
        return 0
    text = updated(arguments.update.read_text(encoding="utf-8"), results.markdown())
    if text is None:
        sys.exit(f"{arguments.update} has no place for the tables; it needs {BEGIN} and {END}, each on a line")
    arguments.update.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
