#!/usr/bin/env python3
"""Shows, for `./do demo`, an all-reduce hidden behind its product, on one screen.

Two ranks share one layer of LLaMA2-70B, a quarter as wide and deep. It has as many tokens as make a product of some
hundredths of a second on this processor, and the emulated link between the ranks is as slow as that product, so that
there is as much to hide as there can be.

    bench/overlap/demo.py [PAGE]     PAGE: where the timeline goes (default: build/timeline.html)

PLAIT names another command than the one that `./do demo` builds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAIT = os.environ.get("PLAIT", str(ROOT / "build/demo/app/cli/plait_demo"))
LAYER = ("matmul-all-reduce", "--n", "2048", "--k", "7168", "--ranks", "2")

TRIAL = 128  # tokens
WANTED_MS = 40
WORTH_SAYING = 1.05  # a smaller gain is within the noise of a machine that does something else too
SERIAL_AT_LEAST = 0.8  # of product and all-reduce, which it does one after the other; less: their times are wrong


def bench(what, *words):
    """The figures of one `plait bench`. It shows its own progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)
    run = subprocess.run([PLAIT, "bench", *LAYER, *map(str, words), "--json", "-"], stdout=subprocess.PIPE, text=True,
                         check=False)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if run.returncode != 0:
        sys.exit(run.returncode)
    return json.loads(run.stdout)


def tokens_for(taken_ms):
    """A power of two, by what the trial took."""
    tokens = 32
    while tokens < 8192 and 1.5 * tokens * taken_ms <= TRIAL * WANTED_MS:
        tokens *= 2
    return tokens


def times(figures):
    """Milliseconds of each schedule."""
    return {one["name"]: one["median_ms"] for one in figures["schedules"]}


def ms(value):
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def row(name, value, serial, remark):
    """With a bar, 30 wide where it takes as long as serial."""
    bar = "=" * max(1, round(30 * min(value / serial, 1.2)))
    return f"  {name:<10}{ms(value):>9}  {bar:<36}  {remark}"


def adds_up(figures):
    """True if serial takes about as long as product and all-reduce together.

    If not, they were measured while other programs used the cores, and so was the ideal, the longer of the two.
    """
    return times(figures)["serial"] >= SERIAL_AT_LEAST * (figures["t_gemm_ms"] + figures["t_comm_ms"])


def hidden_share(figures, name):
    """The hidden share of the communication that could be hidden, in percent; None where noise makes it meaningless."""
    if not adds_up(figures):
        return None
    value = next(one["overlap_efficiency"] for one in figures["schedules"] if one["name"] == name)
    return round(100 * value) if value is not None and 0 <= value <= 1.1 else None


def remark_on(figures, name):
    all_times = times(figures)
    gain = all_times["serial"] / all_times[name]
    share = hidden_share(figures, name) if "link" in figures else None
    hidden = f", {min(share, 100)} % hidden" if share is not None else ""
    return f"{gain:.2f} times as fast{hidden}" if gain > 1 else "no faster this time"


def verdict(figures):
    """Say in words how the figures turned out."""
    all_times = times(figures)
    serial = all_times.pop("serial")
    best = min(all_times, key=all_times.get)
    gain = serial / all_times[best]
    if gain < WORTH_SAYING:
        slowest = max(one["max_ms"] / one["min_ms"] for one in figures["schedules"])
        return (f"The same schedule took up to {slowest:.1f} times as long in one run as in another: other programs\n"
                f"use these cores, and the figures say little. Try again when they are free: with a core for each\n"
                f"rank, fused comes near the ideal.")
    if not adds_up(figures):
        return ("Serial took less time than its product and its all-reduce took alone: other programs use these\n"
                "cores, and the figures say little. Try again when they are free.")
    share = hidden_share(figures, best)
    faster = f'"{best}" is {gain:.2f} times as fast as serial.'
    if share is None:
        return faster
    return (f"{faster} It hides {min(share, 100)} % of what can be hidden. That share is the\n"
            f"overlap efficiency: 0 % is serial, 100 % is the ideal.")


def report(tokens, linked, shared, page):
    serial = times(linked)["serial"]
    ideal = linked["ideal_ms"]
    fused = times(shared)["fused"]
    plain = times(shared)["serial"]
    return f"""
Two ranks share a layer of LLaMA2-70B (the end of the MLP, a quarter as wide and deep, bf16) for
{tokens} tokens. Each multiplies by its half of the weight, which gives a partial sum of the whole
result. An all-reduce adds the two up. What is hidden here is that all-reduce: the partial sums
travel while the product goes on.

The product takes {ms(linked["t_gemm_ms"])} on this processor. The ranks are joined by an emulated link
({linked["link"]}), over which the all-reduce takes about as long: {ms(linked["t_comm_ms"])}.

{row("serial", serial, serial, "first the product, then the all-reduce")}
{row("pipelined", times(linked)["pipelined"], serial, remark_on(linked, "pipelined"))}
{row("fused", times(linked)["fused"], serial, remark_on(linked, "fused"))}
{row("ideal", ideal, serial, "the longer of product and all-reduce")}

pipelined: the product in 4 parts, of which each travels while the next is multiplied.
fused: every finished block of the result is written straight to the rank that adds it up.

{verdict(linked)}

Without a link, in shared memory, the cores move the sums themselves. There is little to hide, and
fusion saves copies:
{row("serial", plain, plain, "first the product, then the all-reduce")}
{row("fused", fused, plain, remark_on(shared, "fused"))}

The results are the same bits in every row.
Both ranks on a timeline, for a browser: {os.path.relpath(page)}
This machine: ./do plait info      your own sizes: ./do plait bench --help
The first ./do plait builds the rest of the command, for some minutes."""


def main():
    trial = bench("trying how fast this processor multiplies", "--m", TRIAL, "--schedule", "serial", "--repeat", 5)
    tokens = tokens_for(trial["t_gemm_ms"])
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/timeline.html"
    page.parent.mkdir(exist_ok=True)
    size = ("--m", tokens, "--seconds", 1)
    linked = bench("measuring over an emulated link", *size, "--parts", 4, "--link", "ratio=1", "--html", page)
    shared = bench("measuring in shared memory", *size, "--schedule", "serial,fused")
    print(report(tokens, linked, shared, page))


if __name__ == "__main__":
    main()
