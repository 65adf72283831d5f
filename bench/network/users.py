#!/usr/bin/env python3
"""Measure what programs gain by plait between two hosts, with its default settings.

    ./do bench network users                                     all rows but vLLM's: 12 minutes
    ./do bench network users --rates 1gbit --rows llama-f32,megatron-bf16
    bench/network/users.py --json FILE                           where plait is installed already

The hosts are network namespaces of this machine, with a rank and a processor each, so it needs
root. Each row is a start of two ranks, with an empty plan cache and without a profile:

    megatron-DTYPE[-sp]  a step of a small GPT of Megatron-Core; sp: with sequence parallelism
    llama-DTYPE          a LLaMA of Hugging Face: prefill of a prompt, and a token of a decode
    vllm-bf16            the same model in vLLM. It runs only if it is named, and it needs the
                         environment of `./do test vllm`: PLAIT_PYTHON=build/venv-vllm/bin/python

Native layers over gloo, plait by default, plait serially with sums in f32, and the best of eight
fixed plans and wires take turns in this one start. Figures are medians: "gain" is native's time
over plait's of the same turn, "over serial" is serial's over plait's, and "of the best" is the best
fixed plan's over plait's. Before, plait runs by itself until it has kept its plans for three rounds
("settled"), and each fixed plan once; the best is measured anew.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "bench"), str(ROOT / "tools")]
import conditions  # noqa: E402, in another folder
import measure  # noqa: E402, beside this file, but it needs the two folders
import netlab  # noqa: E402, in another folder
import users_ranks as ranks  # noqa: E402, beside this file

RATES = ["1gbit", "2gbit", "5gbit", "10gbit", "none"]
SIZES = ("rounds", "settle", "layers", "hidden", "tokens", "prompt", "generated")


def tell_progress(text: str) -> None:
    """Replace the line of a terminal; elsewhere say nothing."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def start(lab: netlab.Lab, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Start a row's ranks, and return what rank 0 has found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [sys.executable, "-B", ranks.__file__, name, "--json", result]
        for size in SIZES:
            words += [f"--{size}", getattr(options, size)]
        # Plans and the machine's profile are kept below the cache, which is empty.
        variables = {"XDG_CACHE_HOME": f"{folder}/cache", "PLAIT_BENCH_MODEL": f"{folder}/model"}
        measure.on_each_host(lab, words, HF_HUB_OFFLINE="1", **variables)
        return json.loads(result.read_text())


def rows_of(found: dict[str, Any], rate: str, name: str) -> list[dict[str, Any]]:
    """Return what two tables say of a row: its times and gains; its first calls and its plans."""
    rows = []
    for phase, best in found["best"].items():
        seconds = {who: of[phase] for who, of in found["seconds"].items()}
        times = {who: statistics.median(of) for who, of in seconds.items()}
        over_plait = {
            who: [one / own for one, own in zip(of, seconds["plait"], strict=True)]
            for who, of in seconds.items()
        }
        gains = {
            "native": times["native"],
            "plait": times["plait"],
            "gain": over_plait["native"],
            "serial": times[ranks.SERIAL],
            "over serial": over_plait[ranks.SERIAL],
            "best fixed": times[best],
            "of the best": over_plait[best],
            "the best is": best,
        }
        settled = found["settled"]
        plans = {
            "connect": found["connect"],
            # A token of vLLM is a difference of two times, which first calls may make negative.
            **{
                f"first, {who}": of[phase] if of[phase] > 0 else None
                for who, of in found["first"].items()
            },
            "settled": f"{'after' if settled['stays'] else 'not in'} {settled['rounds']} rounds",
            "wire": found["wire"],
            "plans": found["plans"][phase],
        }
        unit = dict.fromkeys(set(gains | plans) - {"gain", "over serial", "of the best"}, "s")
        for table, values in (("", gains), (", first calls and plans", plans)):
            title = f"Users, {measure.title(rate)}{table}"
            what = {"what": f"{name} {phase}"}
            rows.append({"table": title, "what": what, "values": values, "unit": unit})
    return rows


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Start all rows at all rates, and return the document."""
    begin = time.monotonic()
    document: dict[str, Any] = {"what": "users", "conditions": {}, "rows": [], "cases": []}
    uses: dict[str, str] = {}
    starts = [(rate, name) for rate in options.rates for name in options.rows]
    try:
        with netlab.Lab() as lab:
            for number, (rate, name) in enumerate(starts, 1):
                tell_progress(f"{name}, {measure.title(rate)}: {number} of {len(starts)} ")
                lab.limit(None if rate == "none" else rate)
                found = start(lab, name, options)
                uses |= found["uses"]
                document["rows"] += rows_of(found["cases"], rate, name)
                document["cases"].append({"rate": rate, "row": name, **found["cases"]})
    finally:
        tell_progress("")
    document["rows"].sort(key=lambda row: "plans" in row["values"])
    document["conditions"] = {
        **conditions.now(),
        **uses,
        **{size: getattr(options, size) for size in SIZES},
        "seconds": round(time.monotonic() - begin),
        "command": f"./do bench network users --rates {','.join(options.rates)} "
        f"--rows {','.join(options.rows)}",
    }
    return document


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="./do bench network users",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rates = f"what each host may send and receive (default {','.join(RATES)})"
    parser.add_argument("--rates", type=measure.rates_of, default=RATES, metavar="LIST", help=rates)
    usual = [name for name in ranks.ROWS if not name.startswith("vllm")]
    rows = f"some of {', '.join(ranks.ROWS)}"
    parser.add_argument(
        "--rows", type=measure.part_of(list(ranks.ROWS)), default=usual, metavar="LIST", help=rows
    )
    limit = "seconds at most until plans stay (default 10)"
    parser.add_argument("--settle", type=float, default=10, metavar="S", help=limit)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    ranks.add_sizes(parser)
    parser.set_defaults(rounds=3, generated=16)
    return parser.parse_args()


def main() -> int:
    """Measure what is asked for."""
    options = read_options()
    return measure.write_document("bench network users", options.json, lambda: measure_all(options))


if __name__ == "__main__":
    sys.exit(main())
