#!/usr/bin/env python3
"""Turns the results of run.sh into documents for bench/report.py, and stores them for the page that is made from them.

    bench/overlap/keep.py build/bench/overlap_*.json

Older results of the same sections and kinds are replaced; other sections stay. again.py stores single rows in files of
their own, SECTION_KIND_again.json, which replace rows of the same problem.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

KEPT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "overlap"
SECTIONS = {"link": "over links", "alone": "without a link", "rival": "beside oneDNN and MPI", "row": "one row",
            "worlds": "more ranks"}
TABLES = {"link": "Overlap over emulated links: efficiency, and how many times as fast as serial fused is",
          "alone": "Fusion in shared memory, without a link: how many times as fast as serial",
          "rival": "Fusion in shared memory, beside oneDNN's product and MPI's collective",
          "row": "One row, in shared memory: what fused takes beyond its product, in three runs",
          "worlds": "More ranks, over emulated links that take as long as the product, which is waited for"}
PARTS = {"4 parts": "pipelined parts=4", "8 parts": "pipelined parts=8", "fused": "fused"}
RATIO = "collective / product"
LEFT = "(product + collective) / product"


def shapes_in(name: str, fewest_rows: int = 1) -> int:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return sum(not line.startswith("#") and int(line.split()[0]) >= fewest_rows for line in lines)


# The numbers of rows of a complete measurement: three operators in three kinds at three ratios or worlds. A rival has
# no 8-bit weights, and more ranks are measured in bf16 only.
DUE = {"link": shapes_in("shapes.txt", 512) * 27, "alone": shapes_in("shapes.txt") * 3,
       "rival": shapes_in("shapes.txt") * 6, "worlds": shapes_in("worlds.txt") * 9}


def bars_of(section: str, kind: str) -> list[dict]:
    def bar(what: str, value: str, take: str, **more) -> dict:
        due = {"due": DUE[section]} if section in DUE and "where" not in more else {}
        return {"what": what, "table": TABLES[section], "value": value, "take": take, **due, **more}

    if section == "link":
        least = {"fused": 0.96, "8 parts": 0.85, "4 parts": 0.72}
        return [*(bar(f"{PARTS[name]}: efficiency", name, "median", **{"at least": one})
                  for name, one in least.items()),
                bar("fused: efficiency", "fused", "lowest", **{"at least": 0.90}),
                bar("fused over serial, the link as slow as the product", "fused over serial", "median",
                    where={RATIO: "1"})]
    if section == "alone":
        where = {"where": {"weights": kind}, "due": DUE["alone"]}
        found = [bar(f"{kind}, no link: fused over serial", "fused", "lowest", **where, **{"at least": 0.99})]
        if kind == "bf16":
            found += [bar("bf16, no link: fused over serial", "fused", "geometric mean", **where, **{"at least": 1.02}),
                      # Without a target. This would be the result if fusion saved the whole collective.
                      bar(f"bf16, no link: what the collective leaves to gain: {LEFT}", LEFT, "geometric mean",
                          **where)]
        return found
    if section == "rival":
        return [bar("no link: fused over oneDNN and MPI", "fused is faster by", take, **{"at least": least})
                for take, least in (("lowest", 1.0), ("geometric mean", 1.10))]
    if section == "row":
        return [bar("one row: fused beyond its product, µs", "µs", "highest", **{"at most": 3})]
    return [bar("fused, 3, 4 and 8 ranks: efficiency", "fused", "lowest", **{"at least": 0.90})]


def row_of(section: str, one: dict) -> dict:
    """A row of a document from one of plait bench, to which its kind and its ratio were added."""
    plans = {plan["plan"]: plan for plan in one.get("schedules") or one["plans"]}
    what = {"operator": one["op"], "weights": one["kind"], "m x n x k": f"{one['m']} x {one['n']} x {one['k']}"}
    alone = {"product, ms": one.get("t_gemm_ms"), "collective, ms": one.get("t_comm_ms")}
    if section == "link":
        what[RATIO] = one["ratio"]
        values = {**alone, **{name: plans[plan]["overlap_efficiency"] for name, plan in PARTS.items() if plan in plans},
                  "fused over serial": plans["fused"]["speedup"]}
    elif section == "alone":
        values = {**alone, "serial, ms": plans["serial"]["median_ms"],
                  **{name: plans[plan]["speedup"] for name, plan in PARTS.items() if plan in plans},
                  LEFT: 1 + one["t_comm_ms"] / one["t_gemm_ms"]}
    elif section == "rival":
        values = {"oneDNN and MPI, ms": one["rival_ms"] or "none",
                  **{f"{plan}, ms": plans[plan]["median_ms"] for plan in ("serial", "fused")},
                  **{f"{plan} is faster by": plans[plan]["over_rival"] for plan in ("serial", "fused")}}
    elif section == "row":
        values = {"µs": [1000 * (plans["fused"]["median_ms"] - one["t_gemm_ms"])]}
    else:
        what["ranks"] = str(one["ranks"])
        values = {**alone, "work, ms": one["t_comm_cpu_ms"], "fused": plans["fused"]["overlap_efficiency"],
                  "fused over serial": plans["fused"]["speedup"]}
    return {"table": TABLES[section], "what": what, "values": values}


def key(row: dict) -> tuple:
    return tuple(row["what"].items())


def rows_of(section: str, found: list[dict]) -> list[dict]:
    """The rows; those of several runs of a single row are one."""
    rows = {}
    for row in (row_of(section, one) for one in found):
        older = rows.setdefault(key(row), row)
        if older is not row and section == "row":
            older["values"]["µs"] += row["values"]["µs"]
    return list(rows.values())


def read(files: list[Path]) -> dict[tuple[str, str], list[dict]]:
    """Read run.sh's results, by section and kind, from overlap_SECTION_OPERATOR_KIND[_MORE].json."""
    groups = {}
    for file in files:
        section, _, kind, *more = file.stem.removeprefix("overlap_").split("_")
        found = json.loads(file.read_text(encoding="utf-8"))
        for one in found if isinstance(found, list) else [found]:
            groups.setdefault((section, kind), []).append({**one, "kind": kind, "ratio": "".join(more)})
    return groups


def conditions_of(section: str, found: list[dict], effort: str) -> dict:
    now = conditions.now()
    now.pop("load")  # it is that of the end, and these runs take hours
    beside = {one.get("rival_refusal") or one["rival"] for one in found if "rival" in one}
    return {**now, **({"ranks": found[0]["ranks"]} if section != "worlds" else {}),
            **({"beside": ", ".join(sorted(beside))} if beside else {}), "command": f"./do bench overlap {effort}"}


def keep(groups: dict[tuple[str, str], list[dict]], folder: Path, effort: str) -> None:
    for (section, kind), found in groups.items():
        report.write(folder / f"{section}_{kind}.json",
                     {"what": f"{SECTIONS[section]} in {kind}", "conditions": conditions_of(section, found, effort),
                      "rows": rows_of(section, found), "bars": bars_of(section, kind)})
        (folder / f"{section}_{kind}_again.json").unlink(missing_ok=True)  # it is older


def keep_again(groups: dict[tuple[str, str], list[dict]], folder: Path, effort: str) -> None:
    """Stores single rows, each with its own day, processor, commit and effort."""
    for (section, kind), found in groups.items():
        file = folder / f"{section}_{kind}_again.json"
        rows = rows_of(section, found)
        documents = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        for older in documents:
            older["rows"] = [row for row in older["rows"] if key(row) not in map(key, rows)]
        documents.append({"what": "", "conditions": conditions_of(section, found, effort), "rows": rows})
        together = {}
        for one in documents:
            together.setdefault(str(one["conditions"]), {**one, "rows": []})["rows"] += one["rows"]
        report.write(file, [{**one, "what": f"{len(one['rows'])} {SECTIONS[section]} in {kind} again"}
                            for one in together.values() if one["rows"]])


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
