#!/usr/bin/env python3
"""Measure what users of Megatron-Core and of Hugging Face models gain by plait.

    bench/python/users.py                    # all tables, some minutes on two quiet cores
    bench/python/users.py megatron --capped  # one of them, as on a processor with AVX2 alone
    bench/python/users.py --json FILE

    megatron   steps of a small GPT of hidden size 1024 on 2 ranks: Megatron's own layers over
               gloo against plait's, in f32 and bf16, with sequence parallelism and without
    link       the same over an emulated link of 2 Gbit/s: serial plans against automatic ones
    llama      a LLaMA of 1024/2816 on 2 ranks: its own tensor parallelism over gloo against
               plait's, and one process on one core and on two; prefill of 512 tokens, and decode
    vllm       the same model in bf16 in vLLM on 2 ranks, without plait's plugin and with it. It
               runs only if it is named: it needs the environment of `./do test vllm`

Contenders take turns, in one start where ranks are alike; figures are medians. --capped sets
PLAIT_ISA=avx2, ONEDNN_MAX_CPU_ISA=AVX2 and ATEN_CPU_CAPABILITY=avx2. It needs the packages of
python/requirements-test.txt.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
CAPS = {"PLAIT_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
LINK = "2gbit,20us"
Seconds = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", help="megatron, link, llama, vllm; without, the first three"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each contender, after one that warms up"
    )
    parser.add_argument("--layers", type=int, default=2, help="of the models")
    parser.add_argument("--capped", action="store_true", help="no instructions beyond AVX2")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--rank", help=argparse.SUPPRESS
    )  # what a process that this one starts measures
    options = parser.parse_args()
    if options.rank:
        WORK[options.rank](options)
        return
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"there is no table {', '.join(sorted(unknown))}")
    rows = []
    for table in options.tables or [name for name in TABLES if name != "vllm"]:
        rows += TABLES[table](options)
    print_table(rows, options)
    if options.json:
        from conditions import now

        options.json.write_text(
            json.dumps({"conditions": now(), "capped": options.capped, "rows": rows}, indent=1)
        )


def print_table(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    from conditions import now

    where = now()
    capped = ", capped at AVX2" if options.capped else ""
    print(
        f"\n{where['processor']}{capped}, {where['date']}, "
        f"plait {where.get('commit', 'without git')}, "
        f"load {where['load']}\n"
    )
    print(
        f"{'what':<52} {'before':<26} {'ms':>9} {'with plait':<18} {'ms':>9} {'gain':>6} {'bar':>5}"
    )
    for row in rows:
        gain = row["before_ms"] / row["ms"]
        bar = "" if row["bar"] is None else f"{row['bar']:.2f}"
        print(
            f"{row['what']:<52} {row['before']:<26} {row['before_ms']:>9.1f} "
            f"{row['contender']:<18} "
            f"{row['ms']:>9.1f} {gain:>6.2f} {bar:>5}"
        )


# Starting what measures


def start(
    work: str,
    options: argparse.Namespace,
    *,
    ranks: int,
    cores: str | None = None,
    **variables: str,
) -> Any:
    """Start ranks of this file, or a process on these cores; return what rank 0 has written."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        own = [
            __file__,
            "--rank",
            work,
            "--rounds",
            str(options.rounds),
            "--layers",
            str(options.layers),
        ]
        own += ["--json", str(result)]
        command = [sys.executable, *own]
        if ranks > 1:
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            command = [sys.executable, *launch, *own]
        if cores is not None:
            command = ["taskset", "-c", cores, *command]
        threads = {
            "OMP_NUM_THREADS": "1" if ranks > 1 or cores is None else str(cores.count(",") + 1)
        }
        caps = dict(CAPS) if options.capped else {}
        if work == "vllm":  # 0.32.0 by itself looks up wrong rows of its embedding with it
            caps.pop("ATEN_CPU_CAPABILITY", None)
        subprocess.run(command, check=True, env={**os.environ, **threads, **caps, **variables})
        return json.loads(result.read_text())


def in_turns(rounds: int, contenders: dict[str, Callable[[], Seconds]]) -> dict[str, Seconds]:
    """Measure all in turns; return the medians of each, without the first round."""
    found: dict[str, list[Seconds]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, measure in contenders.items():
            seconds = measure()
            if turn > 0:
                found[name].append(seconds)
    return {
        name: {key: statistics.median(one[key] for one in all_of) for key in all_of[0]}
        for name, all_of in found.items()
    }


def write(options: argparse.Namespace, result: Any) -> None:
    if os.environ.get("RANK", "0") == "0":
        options.json.write_text(json.dumps(result))


# Megatron-Core


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location(
        "megatron_gpt", ROOT / "examples" / "python" / "megatron_gpt.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_megatron(options: argparse.Namespace) -> None:
    """Steps of the example's model: Megatron's layers, plait's, or plait's serial ones."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    import plait.megatron

    example = load_example()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    is_linked = "PLAIT_LINK" in os.environ
    result = {}
    for dtype in ("f32", "bf16"):
        for sequence in (False, True):
            how = argparse.Namespace(
                hidden=1024,
                layers=options.layers,
                tokens=256,
                dtype=dtype,
                steps=2,
                sequence_parallel=sequence,
            )

            def step(with_plait: Any, how: argparse.Namespace = how) -> Seconds:
                with with_plait:
                    return {"step": example.train(how)[1] * 1e-3}

            before = (
                (lambda: step(plait.megatron.enabled(schedule="serial")))
                if is_linked
                else (lambda: step(contextlib.nullcontext()))
            )
            result[f"{dtype} {sequence}"] = in_turns(
                options.rounds, {"before": before, "plait": lambda: step(plait.megatron.enabled())}
            )
    write(options, result)
    dist.destroy_process_group()


def megatron(options: argparse.Namespace, **variables: str) -> list[dict[str, Any]]:
    found = start("megatron", options, ranks=2, **variables)
    rows = []
    for case, times in found.items():
        dtype, sequence = case.split()
        what = f"Megatron step, {dtype}{', sequence parallel' if sequence == 'True' else ''}"
        if variables:
            before, bar = "plait, serial", 1.25
        else:
            before, bar = "Megatron over gloo", 1.1 if dtype == "f32" else 4.0
            bar = None if dtype == "bf16" and not options.capped else bar
        rows.append(
            {
                "what": what + (f", {LINK}" if variables else ""),
                "before": before,
                "contender": "plait",
                "before_ms": times["before"]["step"] * 1e3,
                "ms": times["plait"]["step"] * 1e3,
                "bar": bar,
            }
        )
    return rows


# Hugging Face

PROMPT, TOKENS = 512, 32


def make_llama(options: argparse.Namespace, folder: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=options.layers,
            num_attention_heads=16,
            vocab_size=4096,
        )
    ).save_pretrained(folder)


def generate(model: Any) -> Seconds:
    """Time a prompt's prefill, and a token of what follows."""
    import torch

    prompt = torch.arange(3, 3 + PROMPT)[None]
    how = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.ones_like(prompt)
    with torch.no_grad():
        begin = time.perf_counter()
        model(prompt, use_cache=True)
        prefill = time.perf_counter() - begin
        begin = time.perf_counter()
        model.generate(prompt[:, :8], attention_mask=mask[:, :8], max_new_tokens=TOKENS, **how)
        decode = (time.perf_counter() - begin) / TOKENS
    return {"prefill": prefill, "decode": decode}


def measure_llama(options: argparse.Namespace) -> None:
    """A model that is loaded twice, with transformers' own layers and with plait's, in turns."""
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    import plait.transformers

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = {}
    for dtype in (torch.float32, torch.bfloat16):

        def load(with_plait: Any, dtype: torch.dtype = dtype) -> Any:
            with with_plait:
                return AutoModelForCausalLM.from_pretrained(
                    os.environ["PLAIT_BENCH_MODEL"],
                    dtype=dtype,
                    distributed_config=DistributedConfig(tp_size=dist.get_world_size()),
                )

        models = {
            "before": load(contextlib.nullcontext()),
            "plait": load(plait.transformers.enabled()),
            "auto": load(plait.transformers.enabled(product="auto")),
        }
        result[str(dtype).removeprefix("torch.")] = in_turns(
            options.rounds,
            {name: (lambda model=model: generate(model)) for name, model in models.items()},
        )
    write(options, result)
    dist.destroy_process_group()


def measure_one_process(options: argparse.Namespace) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    result = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_pretrained(os.environ["PLAIT_BENCH_MODEL"], dtype=dtype)
        found = in_turns(options.rounds, {"alone": lambda model=model: generate(model)})
        result[str(dtype).removeprefix("torch.")] = found["alone"]
    write(options, result)


# For each dtype and phase: against its own tensor parallelism, one core, two cores.
BARS = {
    ("float32", "decode"): (1.7, 1.25, 0.95),
    ("float32", "prefill"): (None, 1.6, 0.95),
    ("bfloat16", "prefill"): (4.0, None, None),  # without AVX-512
    ("bfloat16", "decode"): (None, None, None),
}


def llama(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_llama(options, folder)
        found = start("llama", options, ranks=2, PLAIT_BENCH_MODEL=folder)
        cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
        alone = {
            "one process, one core": start(
                "one", options, ranks=1, cores=cores[0], PLAIT_BENCH_MODEL=folder
            ),
            "one process, two cores": start(
                "one", options, ranks=1, cores=",".join(cores), PLAIT_BENCH_MODEL=folder
            ),
        }
    for (dtype, phase), bars in BARS.items():
        before = {
            "its own TP=2 over gloo": found[dtype]["before"][phase],
            **{name: one[dtype][phase] for name, one in alone.items()},
        }
        for bar, (name, seconds) in zip(bars, before.items(), strict=True):
            for contender in ("plait", "auto"):
                capped = dtype == "float32" or options.capped
                rows.append(
                    {
                        "what": f"LLaMA {phase}, {dtype}",
                        "before": name,
                        "before_ms": seconds * 1e3,
                        "contender": "plait" if contender == "plait" else "plait, product=auto",
                        "ms": found[dtype][contender][phase] * 1e3,
                        "bar": bar if capped else None,
                    }
                )
    return rows


# vLLM


def measure_vllm(options: argparse.Namespace) -> None:
    """An engine on two ranks: a prompt's prefill, and a token of what follows."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, cores)))
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams

    llm = LLM(
        os.environ["PLAIT_BENCH_MODEL"],
        tensor_parallel_size=2,
        dtype="bfloat16",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
    )

    def tokens(prompt: int, count: int) -> float:
        how = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        llm.generate({"prompt_token_ids": list(range(3, 3 + prompt))}, how, use_tqdm=False)
        return time.perf_counter() - begin

    def measure() -> Seconds:
        few = tokens(8, 1)
        return {"prefill": tokens(PROMPT, 1), "decode": (tokens(8, 1 + TOKENS) - few) / TOKENS}

    write(options, in_turns(options.rounds, {"engine": measure})["engine"])


def vllm(options: argparse.Namespace) -> list[dict[str, Any]]:
    found: dict[str, list[Seconds]] = {"without": [], "plait": []}
    with tempfile.TemporaryDirectory() as folder:
        make_llama(options, folder)
        for _ in range(2):  # engines take turns
            for name, variables in (("without", {"VLLM_PLUGINS": ""}), ("plait", {})):
                found[name].append(
                    start("vllm", options, ranks=1, PLAIT_BENCH_MODEL=folder, **variables)
                )
    rows = []
    for phase, bar in (("prefill", 3.0), ("decode", None)):
        before, ms = (
            1e3 * statistics.median(one[phase] for one in found[name])
            for name in ("without", "plait")
        )
        rows.append(
            {
                "what": f"vLLM {phase}, bfloat16",
                "before": "its own TP=2",
                "before_ms": before,
                "contender": "plait",
                "ms": ms,
                "bar": bar if options.capped else None,
            }
        )
    return rows


WORK = {
    "megatron": measure_megatron,
    "llama": measure_llama,
    "one": measure_one_process,
    "vllm": measure_vllm,
}
TABLES = {
    "megatron": megatron,
    "link": lambda options: megatron(options, PLAIT_LINK=LINK),
    "llama": llama,
    "vllm": vllm,
}

if __name__ == "__main__":
    main()
