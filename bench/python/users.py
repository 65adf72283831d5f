#!/usr/bin/env python3
"""Measure what users of Megatron-Core, of Hugging Face models and of vLLM gain by plait.

    ./do bench python users                    # three tables, some minutes on two quiet cores
    ./do bench python users megatron --capped  # one of them, as on a processor with AVX2 alone
    bench/python/users.py --json FILE          # where plait is installed already
    bench/python/users.py vllm --dtypes float32  # models of one dtype alone, in half the time

    megatron   steps of a small GPT of hidden size 1024 on 2 ranks: Megatron's own layers over
               gloo against plait's, in f32 and bf16, with sequence parallelism and without
    link       the same over an emulated link of 2 Gbit/s: serial plans against automatic ones
    llama      a LLaMA of 1024/2816 on 2 ranks: its own tensor parallelism over gloo against
               plait's, and one process on one core and on two; prefill of 512 tokens, and decode
    vllm       the same model in vLLM on 2 ranks, without plait's plugin and with it. It runs only
               if it is named: it needs the environment of `./do test vllm`
    experts    a small Qwen3-MoE in vLLM on 2 ranks: its own tensor parallelism within experts
               against experts that plait's ranks share; under the same conditions

Contenders take turns: in one start where ranks are alike, and otherwise start by start. Figures are
medians. Losses of five steps and tokens are compared with those of the contender before: each loss
is to be equal in five digits in f32 and in three in bf16, and all tokens are. The exit status is 1
where they aren't. The models of the last two tables have learnt to count: with random weights
tokens are so close that the order of a sum decides in bf16.

--capped sets PLAIT_ISA=avx2, ONEDNN_MAX_CPU_ISA=AVX2, MKL_ENABLE_INSTRUCTIONS=AVX2 (MKL multiplies
float32 for torch) and ATEN_CPU_CAPABILITY=avx2; the last of them not for vLLM, whose version 0.32.0
then looks up wrong rows of its embedding by itself. What was in use is printed for each table. It
needs the packages of python/requirements-test.txt.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from users_work import add_sizes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
CAPS = {
    "PLAIT_ISA": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}
LINK = "2gbit,20us"
SIZES = ("rounds", "layers", "hidden", "tokens", "prompt", "generated")
Rows = list[dict[str, Any]]


def main() -> None:
    """Measure the tables that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables",
        nargs="*",
        help="megatron, link, llama, vllm, experts; without, the first three",
    )
    parser.add_argument("--capped", action="store_true", help="no instructions beyond AVX2")
    parser.add_argument(
        "--turns", type=int, default=3, help="of processes that are started in turns"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    add_sizes(parser)
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(unknown))}")
    names = options.tables or [name for name in TABLES if name not in ("vllm", "experts")]
    bench = Bench(options, tuple(parser.get_default(size) for size in SIZES[1:]))
    rows = [{"table": name, **row} for name in names for row in TABLES[name](bench)]
    conditions = where(options, bench)
    print_table(rows, conditions)
    if options.json:
        options.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1))
    if not all(row["agrees"] for row in rows):
        sys.exit("losses or tokens differ by more than is promised")


def where(options: argparse.Namespace, bench: "Bench") -> dict[str, Any]:
    """Say where, when and with what it was measured."""
    from conditions import now

    sizes = {name: getattr(options, name) for name in SIZES}
    return {**now(), "capped": options.capped, "sizes": sizes, "uses": bench.uses}


def print_table(rows: Rows, conditions: dict[str, Any]) -> None:
    """Print the rows, and below them what was in use."""
    print(
        f"\n{'what':<50} {'before':<24} {'ms':>9} {'with plait':<20} {'ms':>9} {'gain':>6} "
        f"{'bar':>5}  compared"
    )
    for row in rows:
        bar = "" if row["bar"] is None else f"{row['bar']:.2f}"
        print(
            f"{row['what']:<50} {row['before']:<24} {row['before_ms']:>9.1f} "
            f"{row['contender']:<20} {row['ms']:>9.1f} {row['before_ms'] / row['ms']:>6.2f} "
            f"{bar:>5}  {row['compared']}"
        )
    capped = ", capped at AVX2" if conditions["capped"] else ""
    print(
        f"\n{conditions['processor']}{capped}, {conditions['date']}, "
        f"commit {conditions.get('commit', 'unknown')}, load {conditions['load']}; "
        + ", ".join(f"{name} {value}" for name, value in conditions["sizes"].items())
    )
    for table, uses in conditions["uses"].items():
        print(f"{table}: " + ", ".join(f"{name} {value}" for name, value in uses.items()))


class Bench:
    """Starts processes, and keeps what they say that they use."""

    def __init__(self, options: argparse.Namespace, sizes: tuple[int, ...]) -> None:
        self.options = options
        self.uses: dict[str, dict[str, str]] = {}
        self.has_bars = tuple(getattr(options, name) for name in SIZES[1:]) == sizes

    def start(
        self,
        work: str,
        *,
        ranks: int,
        rounds: int | None = None,
        cores: str | None = None,
        **variables: str,
    ) -> Any:
        """Start ranks, or a process on these cores; return what rank 0 has found."""
        options = self.options
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            own = [str(Path(__file__).with_name("users_work.py")), work, "--json", str(result)]
            for size in SIZES:
                own += [f"--{size}", str(getattr(options, size))]
            own += ["--rounds", str(options.rounds if rounds is None else rounds)]
            own += ["--dtypes", *options.dtypes]
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            command = [sys.executable, *(launch if ranks > 1 else ()), *own]
            if cores is not None:
                command = ["taskset", "-c", cores, *command]
            threads = "1" if ranks > 1 or cores is None else str(cores.count(",") + 1)
            caps = dict(CAPS) if options.capped else {}
            if work == "vllm":
                caps.pop("ATEN_CPU_CAPABILITY", None)
            environment = {**os.environ, "OMP_NUM_THREADS": threads, **caps, **variables}
            subprocess.run(command, check=True, env=environment)
            if work.startswith("make"):
                return None
            found = json.loads(result.read_text())
        self.uses[work if "PLAIT_LINK" not in variables else "link"] = found["uses"]
        return found["cases"]

    def start_in_turns(self, contenders: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Start all in turns, and put together the rounds of each."""
        rounds = -(-self.options.rounds // self.options.turns)
        found: dict[str, Any] = {}
        for _ in range(self.options.turns):
            for name, how in contenders.items():
                cases = self.start(rounds=rounds, **how)
                for case, contender, made in (
                    (case, contender, made)
                    for case, all_of in cases.items()
                    for contender, made in all_of.items()
                ):
                    known = found.setdefault(name, {}).setdefault(case, {})
                    if contender not in known:
                        known[contender] = made
                        continue
                    for phase, seconds in made["seconds"].items():
                        known[contender]["seconds"][phase] += seconds
        return found

    def bar(self, bar: float | None) -> float | None:
        """Return a bar, which is of the sizes that are meant."""
        return bar if self.has_bars else None


def milliseconds(contender: dict[str, Any], phase: str) -> float:
    return 1e3 * statistics.median(contender["seconds"][phase])


def compare_losses(before: list[float], found: list[float], dtype: str) -> tuple[str, bool]:
    """Compare each loss in the digits that are promised."""
    off = max(abs(a - b) / abs(a) for a, b in zip(before, found, strict=True))
    said = f"losses differ by {off:.0e}" if off else "equal losses"
    return said, off < (1e-5 if dtype == "f32" else 1e-3)


def compare_tokens(before: list[int], found: list[int]) -> tuple[str, bool]:
    """Compare tokens, all of which are to be equal."""
    equal = sum(a == b for a, b in zip(before, found, strict=True))
    return f"{equal} of {len(found)} tokens equal", equal == len(found)


def megatron(bench: Bench, **variables: str) -> Rows:
    """Steps of a GPT, on two ranks."""
    rows = []
    for case, found in bench.start("megatron", ranks=2, **variables).items():
        dtype, sequence = case.split()
        what = f"Megatron step, {dtype}{', sequence parallel' if sequence == 'True' else ''}"
        if variables:
            before, bar = "plait, serial", 1.25
        else:
            before, bar = "Megatron over gloo", 1.1 if dtype == "f32" else 4.0
            bar = None if dtype == "bf16" and not bench.options.capped else bar
        losses = (found["before"]["made"], found["plait"]["made"])
        compared, agrees = compare_losses(*losses, dtype)
        rows.append(
            {
                "what": what + (f", {LINK}" if variables else ""),
                "before": before,
                "contender": "plait",
                "before_ms": milliseconds(found["before"], "step"),
                "ms": milliseconds(found["plait"], "step"),
                "bar": bench.bar(bar),
                "compared": compared,
                "agrees": agrees,
            }
        )
    return rows


# For each dtype and phase: against its own tensor parallelism, one core, two cores.
BARS = {
    ("float32", "decode"): (1.7, 1.25, 1.0),
    ("float32", "prefill"): (None, 1.6, 0.97),
    ("bfloat16", "prefill"): (4.0, None, 0.97),  # the first without AVX-512
    ("bfloat16", "decode"): (None, None, 1.0),
}


CONTENDERS = {"plait": "plait", "fixed": "plait, fixed_weights"}


def llama(bench: Bench) -> Rows:
    """A LLaMA of Hugging Face, on two ranks and in one process."""
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
    with tempfile.TemporaryDirectory() as folder:
        model = {"PLAIT_BENCH_MODEL": folder}
        bench.start("make", ranks=1, **model)
        found = bench.start_in_turns(
            {
                "ranks": {"work": "llama", "ranks": 2, **model},
                "one core": {"work": "one", "ranks": 1, "cores": cores[0], **model},
                "two cores": {"work": "one", "ranks": 1, "cores": ",".join(cores), **model},
            }
        )
    rows = []
    for (dtype, phase), bars in BARS.items():
        if dtype not in bench.options.dtypes:
            continue
        ranks = found["ranks"][dtype]
        before = {
            "its own TP=2 over gloo": ranks["before"],
            "one process, one core": found["one core"][dtype]["alone"],
            "one process, two cores": found["two cores"][dtype]["alone"],
        }
        is_meant = dtype == "float32" or bench.options.capped
        for bar, (name, other) in zip(bars, before.items(), strict=True):
            has_bar = is_meant or name == "one process, two cores"
            for contender, called in CONTENDERS.items():
                tokens = (other["made"], ranks[contender]["made"])
                compared, agrees = compare_tokens(*tokens)
                rows.append(
                    {
                        "what": f"LLaMA {phase}, {dtype}",
                        "before": name,
                        "before_ms": milliseconds(other, phase),
                        "contender": called,
                        "ms": milliseconds(ranks[contender], phase),
                        "bar": bench.bar(bar if has_bar else None),
                        "compared": compared,
                        "agrees": agrees,
                    }
                )
    return rows


def vllm(bench: Bench) -> Rows:
    """An engine of vLLM, on two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        model = {"PLAIT_BENCH_MODEL": folder}
        bench.start("make", ranks=1, **model)
        contenders: dict[str, dict[str, Any]] = {}
        for dtype in bench.options.dtypes:
            engine = {"work": "vllm", "ranks": 1, "PLAIT_BENCH_DTYPE": dtype, **model}
            contenders[f"before {dtype}"] = {**engine, "VLLM_PLUGINS": ""}
            contenders[f"plait {dtype}"] = engine
        found = bench.start_in_turns(contenders)
    rows = []
    for dtype in bench.options.dtypes:
        before, ours = (found[f"{who} {dtype}"]["engine"]["engine"] for who in ("before", "plait"))
        compared, agrees = compare_tokens(before["made"], ours["made"])
        for phase in ("prefill", "decode"):
            has_bar = bench.options.capped and (phase, dtype) == ("prefill", "bfloat16")
            rows.append(
                {
                    "what": f"vLLM {phase}, {dtype}",
                    "before": "its own TP=2",
                    "before_ms": milliseconds(before, phase),
                    "contender": "plait",
                    "ms": milliseconds(ours, phase),
                    "bar": bench.bar(3.0 if has_bar else 1.0),
                    "compared": compared,
                    "agrees": agrees,
                }
            )
    return rows


def experts(bench: Bench) -> Rows:
    """An engine of vLLM whose model is a mixture of experts with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        model = {"PLAIT_BENCH_MODEL": folder}
        bench.start("make-experts", ranks=1, **model)
        how: dict[str, Any] = {"work": "vllm", "ranks": 1, **model}
        before = {"VLLM_PLUGINS": "", "PLAIT_BENCH_DTYPE": "bfloat16"}
        contenders = {
            "its own TP=2": {**how, **before},
            "plait EP=2": {**how, "PLAIT_BENCH_DTYPE": "bfloat16", "PLAIT_BENCH_EXPERTS": "1"},
        }
        found = bench.start_in_turns(contenders)
    (before_name, theirs), (our_name, ours) = (
        (name, one["engine"]["engine"]) for name, one in found.items()
    )
    return [
        {
            "what": f"vLLM experts, {phase}, bfloat16",
            "before": before_name,
            "before_ms": milliseconds(theirs, phase),
            "contender": our_name,
            "ms": milliseconds(ours, phase),
            "bar": bench.bar(1.0),
            "compared": "nothing: weights are random",
            "agrees": True,
        }
        for phase in ("prefill", "decode")
    ]


TABLES = {
    "megatron": megatron,
    "link": lambda bench: megatron(bench, PLAIT_LINK=LINK),
    "llama": llama,
    "vllm": vllm,
    "experts": experts,
}

if __name__ == "__main__":
    main()
