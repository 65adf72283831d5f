#!/usr/bin/env python3
"""Stores the results of `./do bench overlap`, by section, for the page that is made from them.

    bench/overlap/keep.py build/bench/overlap_*.json

Older results of the same sections and kinds are replaced; other sections stay. again.py stores single rows in files of
their own, SECTION_KIND_again.json, which replace rows of the same problem.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conditions import commit, processor  # noqa: E402, beside this folder

KEPT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "overlap"


def read(files: list[Path]) -> dict[tuple[str, str], list[dict]]:
    """The rows by section and kind. Files are called overlap_SECTION_OPERATOR_KIND[_MORE].json."""
    groups = {}
    for file in files:
        section, _, kind, *more = file.stem.removeprefix("overlap_").split("_")
        found = json.loads(file.read_text(encoding="utf-8"))
        for one in found if isinstance(found, list) else [found]:
            groups.setdefault((section, kind), []).append({**one, "kind": kind, "ratio": "".join(more)})
    return groups


def problem(row: dict) -> tuple:
    """The properties that identify a row of a section and kind."""
    return tuple(row[name] for name in ("op", "m", "n", "k", "ratio"))


def again_file(folder: Path, section: str, kind: str) -> Path:
    return folder / f"{section}_{kind}_again.json"


def keep(groups: dict[tuple[str, str], list[dict]], folder: Path, effort: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for (section, kind), rows in groups.items():
        kept = {**conditions(effort), "section": section, "kind": kind, "rows": rows}
        (folder / f"{section}_{kind}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        again_file(folder, section, kind).unlink(missing_ok=True)  # it is older


def keep_again(groups: dict[tuple[str, str], list[dict]], folder: Path, effort: str) -> None:
    """Stores single rows, each with its own day, processor, commit and effort."""
    for (section, kind), rows in groups.items():
        file = again_file(folder, section, kind)
        new = {problem(row) for row in rows}
        older = json.loads(file.read_text(encoding="utf-8"))["again"] if file.exists() else []
        again = [row for row in older if problem(row) not in new] + [{**row, **conditions(effort)} for row in rows]
        file.write_text(json.dumps({"section": section, "kind": kind, "again": again}, indent=1) + "\n",
                        encoding="utf-8")


def conditions(effort: str) -> dict:
    return {"date": str(datetime.date.today()), "processor": processor(), **commit(), "effort": effort}


def main() -> int:
    parser = argparse.ArgumentParser(description="Stores the results of the overlap benchmarks.")
    parser.add_argument("--folder", type=Path, default=KEPT, metavar="DIR",
                        help="folder for the results (default: docs/figures/overlap)")
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--seconds", default="1", metavar="S", help="the --seconds of run.sh")
    words.add_argument("--repeat", metavar="N", help="the --repeat of run.sh")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    effort = f"--repeat {arguments.repeat}" if arguments.repeat else f"--seconds {arguments.seconds}"
    keep(read(arguments.files), arguments.folder, effort)
    return 0


if __name__ == "__main__":
    sys.exit(main())
