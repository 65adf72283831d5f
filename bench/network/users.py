#!/usr/bin/env python3
"""Measure what programs gain by plait between two hosts, with its default settings.

    ./do bench network users                                     all rows: half an hour
    ./do bench network users --rates 1gbit --rows llama-f32,megatron-bf16
    bench/network/users.py --json FILE                           where plait is installed already

The hosts are network namespaces of this machine, with a rank and a processor each, so it needs
root. Each row is a start of two ranks, with an empty plan cache and without a profile:

    megatron-DTYPE[-sp]  a step of a small GPT of Megatron-Core; sp: with sequence parallelism
    llama-DTYPE          a LLaMA of Hugging Face: prefill of a prompt, and a token of a decode
    vllm-bf16            the same model in vLLM, in the environment that `./do test vllm` makes,
                         build/venv-vllm; without it, the row is left out

Native layers over gloo, plait by default, plait serially with sums in f32, and the best of eight
fixed plans and wires take turns in this one start. Figures are medians: "gain" is native's time
over plait's of the same turn, "over serial" is serial's over plait's, and "of the best" is the best
fixed plan's over plait's. Before, plait runs by itself until it has kept its plans for three rounds
("settled"), and each fixed plan once; the best is measured anew. Bars are about gains, and about a
program's start: the time of connecting and of the probe that measures the network, and the first
step or prefill with plait, with all that is made for it, over native's, which comes before.
"""

import argparse
import importlib.util
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
VLLM = ROOT / "build/venv-vllm/bin/python"  # vLLM pins the versions of its needs
MOST_OF_START = {"connect and probe": ("s", 0.2), "first over native's": ("", 1.3)}
LEAST_OF_ALL = {"gain": 1.0, "of the best": 0.97}
LEAST_GAINS = {
    "1gbit": {
        "megatron-f32 step": 1.35,
        "megatron-f32-sp step": 1.35,
        "megatron-bf16 step": 1.15,
        "megatron-bf16-sp step": 1.30,
        "llama-f32 prefill": 1.20,
        "llama-f32-sp prefill": 1.35,
    },
    "2gbit": {
        "megatron-f32 step": 1.25,
        "megatron-f32-sp step": 1.25,
        "megatron-bf16 step": 1.10,
        "megatron-bf16-sp step": 1.10,
    },
}
SIZES = ("rounds", "settle", "layers", "hidden", "tokens", "prompt", "generated")


def tell_progress(text: str) -> None:
    """Replace the line of a terminal; elsewhere say nothing."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def python_of(name: str) -> str | None:
    """Return the Python that has what a row needs; None if there is none."""
    if ranks.ROWS[name].work != "vllm" or importlib.util.find_spec("vllm") is not None:
        return sys.executable
    return str(VLLM) if VLLM.exists() else None


def can_run(name: str) -> bool:
    """Say so if a row must be left out."""
    if python_of(name) is not None:
        return True
    print(f"{name} is left out: `./do test vllm` makes its environment", file=sys.stderr)
    return False


def start(lab: netlab.Lab, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Start a row's ranks, and return what rank 0 has found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [python_of(name), "-B", ranks.__file__, name, "--json", result]
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
            "connect and probe": found["connect"] + found["probe"],
            # A token of vLLM is a difference of two times, which first calls may make negative.
            **{
                f"first, {who}": of[phase] if of[phase] > 0 else None
                for who, of in found["first"].items()
            },
            "first over native's": found["first"]["plait"][phase] / found["first"]["native"][phase]
            if phase != "decode"
            else None,
            "settled": f"{'after' if settled['stays'] else 'not in'} {settled['rounds']} rounds",
            "wire": found["wire"],
            "plans": found["plans"][phase],
        }
        ratios = {"gain", "over serial", "of the best", "first over native's"}
        unit = dict.fromkeys(set(gains | plans) - ratios, "s")
        for table, values in (("", gains), (", first calls and plans", plans)):
            title = f"Users, {measure.title(rate)}{table}"
            row = {"what": {"what": f"{name} {phase}"}, "values": values, "unit": unit}
            least = LEAST_GAINS.get(rate, {}).get(f"{name} {phase}")
            if values is gains and least is not None:
                row["bar"] = {"of": "gain", "at least": least}
            rows.append({"table": title, **row})
    return rows


def bars_of(rate: str) -> list[dict[str, Any]]:
    """Return the bars of all rows."""
    title = f"Users, {measure.title(rate)}"
    gains = [
        (title, value, "lowest", {"at least": least, "unit": ""})
        for value, least in LEAST_OF_ALL.items()
    ]
    starts = [
        (f"{title}, first calls and plans", value, "highest", {"at most": most, "unit": unit})
        for value, (unit, most) in MOST_OF_START.items()
    ]
    return [
        {"what": f"{value}, {measure.title(rate)}", "table": table, "value": value, "take": take}
        | limit
        for table, value, take, limit in gains + starts
    ]


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Start all rows at all rates, and return the document."""
    begin = time.monotonic()
    document: dict[str, Any] = {"what": "users", "conditions": {}, "rows": [], "cases": []}
    uses: dict[str, str] = {}
    rows = [name for name in options.rows if can_run(name)]
    starts = [(rate, name) for rate in options.rates for name in rows]
    document["bars"] = [bar for rate in options.rates for bar in bars_of(rate)]
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
        f"--rows {','.join(rows)} --rounds {options.rounds} --settle {options.settle:g}",
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
    known = list(ranks.ROWS)
    rows = f"some of {', '.join(known)}"
    parser.add_argument(
        "--rows", type=measure.part_of(known), default=known, metavar="LIST", help=rows
    )
    limit = "seconds at most until plans stay (default 30)"
    parser.add_argument("--settle", type=float, default=30, metavar="S", help=limit)
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
