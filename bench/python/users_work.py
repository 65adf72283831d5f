"""Measurements of the processes that users.py starts: steps, prompts and tokens, in turns.

    torchrun --nproc-per-node 2 bench/python/users_work.py megatron --json FILE

Rank 0 writes the file: for each case and contender the seconds of each round, and what was made
(losses, tokens), with the versions and the instruction sets that were in use.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DTYPES = ("float32", "bfloat16")
Seconds = dict[str, float]
Round = tuple[Seconds, list[Any]]  # and what was made


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that users.py hands on."""
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each contender, after one that warms up"
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="of llama's and vllm's models"
    )
    parser.add_argument("--layers", type=int, default=2, help="of the models")
    parser.add_argument("--hidden", type=int, default=1024, help="size of the models")
    parser.add_argument("--tokens", type=int, default=256, help="of a sequence in training")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prefill")
    parser.add_argument("--generated", type=int, default=32, help="tokens of a decode")


def in_turns(rounds: int, contenders: dict[str, Callable[[], Round]]) -> dict[str, Any]:
    """Measure all in turns; the first round of each only warms up."""
    found: dict[str, Any] = {name: {"seconds": {}, "made": []} for name in contenders}
    for turn in range(rounds + 1):
        for name, measure in contenders.items():
            seconds, found[name]["made"] = measure()
            for phase, spent in seconds.items() if turn > 0 else ():
                found[name]["seconds"].setdefault(phase, []).append(spent)
    return found


def uses(*packages: str) -> dict[str, str]:
    """Say which versions and instruction sets this process uses."""
    import torch

    import plait

    found = {"plait": plait.__version__, "torch": torch.__version__}
    found |= {name: importlib.metadata.version(name) for name in packages}
    info = subprocess.run(
        [sys.executable, "-m", "plait", "info"], capture_output=True, text=True, check=False
    ).stdout
    sets = [line.split()[1] for line in info.splitlines() if line.strip().startswith("uses ")]
    # A tree without the command knows what it was told alone.
    found["plait uses"] = sets[0] if sets else os.environ.get("PLAIT_ISA", "all that there are")
    found["torch uses"] = torch.backends.cpu.get_cpu_capability()
    found["oneDNN may use"] = os.environ.get("ONEDNN_MAX_CPU_ISA", "all that there are")
    return found


def write(options: argparse.Namespace, cases: dict[str, Any], *packages: str) -> None:
    """Write the file, on rank 0."""
    if os.environ.get("RANK", "0") == "0":
        found = {"uses": uses(*packages), "cases": cases}
        options.json.write_text(json.dumps(found))


# Megatron-Core


def load_example() -> Any:
    """Return examples/python/megatron_gpt.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "megatron_gpt", ROOT / "examples" / "python" / "megatron_gpt.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare_megatron(ranks: int) -> Any:
    """Prepare Megatron for the example's model on all ranks, and return the example."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    import plait.megatron

    plait.megatron.stand_in_for_cuda()  # where there is none
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    model_parallel_cuda_manual_seed(0)
    return load_example()


def measure_megatron(options: argparse.Namespace) -> None:
    """Five steps of the example's model: Megatron's layers, plait's, or plait's serial ones."""
    import torch
    import torch.distributed as dist

    import plait.megatron

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    example = prepare_megatron(dist.get_world_size())
    is_linked = "PLAIT_LINK" in os.environ
    cases = {}
    for dtype in ("f32", "bf16"):
        for sequence in (False, True):
            how = argparse.Namespace(
                hidden=options.hidden,
                layers=options.layers,
                tokens=options.tokens,
                dtype=dtype,
                steps=5,
                sequence_parallel=sequence,
            )

            def step(with_plait: Any, how: argparse.Namespace = how) -> Round:
                with with_plait:
                    losses, milliseconds = example.train(how)
                return {"step": milliseconds * 1e-3}, losses

            before = (
                (lambda: step(plait.megatron.enabled(schedule="serial")))
                if is_linked
                else (lambda: step(contextlib.nullcontext()))
            )
            cases[f"{dtype} {sequence}"] = in_turns(
                options.rounds, {"before": before, "plait": lambda: step(plait.megatron.enabled())}
            )
    write(options, cases, "megatron-core")
    dist.destroy_process_group()


# Hugging Face


def new_llama(options: argparse.Namespace) -> Any:
    """Return a model with random weights, the same in every process."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=options.hidden,
            intermediate_size=options.hidden * 11 // 4,
            num_hidden_layers=options.layers,
            num_attention_heads=16,
            vocab_size=4096,
        )
    )


def make_llama(options: argparse.Namespace) -> None:
    """Teach a model to count, and save it for all that load it.

    With random weights the logits of the best two of 4096 tokens often differ by less than bf16's
    rounding. Then another product chooses other tokens without being wrong.
    """
    import torch

    model = new_llama(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=min(5e-3, 0.5 / options.hidden))
    for _ in range(300):
        tokens = torch.randint(3, 32, (6, 1)) + torch.arange(16 + options.generated)
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        if loss < 0.02:
            break
    else:
        sys.exit("the model has not learnt to count")
    model.save_pretrained(os.environ["PLAIT_BENCH_MODEL"])


def make_experts(options: argparse.Namespace) -> None:
    """Save a mixture of experts with random weights."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed

    set_seed(0)
    config = Qwen3MoeConfig(
        hidden_size=options.hidden,
        moe_intermediate_size=options.hidden * 3 // 8,
        num_experts=32,
        num_experts_per_tok=8,
        num_hidden_layers=options.layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=64,
        vocab_size=4096,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(os.environ["PLAIT_BENCH_MODEL"])


def generate(model: Any, options: argparse.Namespace) -> Round:
    """Time a prompt's prefill, and a token of what follows."""
    import torch

    prompt = torch.arange(3, 3 + options.prompt)[None]
    how = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.ones_like(prompt)
    with torch.no_grad():
        begin = time.perf_counter()
        model(prompt, use_cache=True)
        prefill = time.perf_counter() - begin
        begin = time.perf_counter()
        count = options.generated
        tokens = model.generate(
            prompt[:, :8], attention_mask=mask[:, :8], max_new_tokens=count, **how
        )
        decode = (time.perf_counter() - begin) / count
    return {"prefill": prefill, "decode": decode}, tokens[0].tolist()


def dtypes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the dtypes that are asked for, by name."""
    import torch

    return {name: getattr(torch, name) for name in options.dtypes}


def measure_llama(options: argparse.Namespace) -> None:
    """A model that is loaded thrice, with transformers' own layers and with plait's, in turns."""
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    import plait.transformers

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = {}
    for name, dtype in dtypes(options).items():

        def load(with_plait: Any, dtype: Any = dtype) -> Any:
            with with_plait:
                return AutoModelForCausalLM.from_pretrained(
                    os.environ["PLAIT_BENCH_MODEL"],
                    dtype=dtype,
                    distributed_config=DistributedConfig(tp_size=dist.get_world_size()),
                )

        models = {
            "before": load(contextlib.nullcontext()),
            "plait": load(plait.transformers.enabled()),
            "fixed": load(plait.transformers.enabled(fixed_weights=True)),
        }
        cases[name] = in_turns(
            options.rounds,
            {who: (lambda model=model: generate(model, options)) for who, model in models.items()},
        )
    write(options, cases, "transformers", "accelerate")
    dist.destroy_process_group()


def measure_one_process(options: argparse.Namespace) -> None:
    """Measure the model in one process, on the cores that it was started on."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    cases = {}
    for name, dtype in dtypes(options).items():
        model = AutoModelForCausalLM.from_pretrained(os.environ["PLAIT_BENCH_MODEL"], dtype=dtype)
        cases[name] = in_turns(
            options.rounds, {"alone": lambda model=model: generate(model, options)}
        )
    write(options, cases, "transformers")


# vLLM


def make_engine(options: argparse.Namespace, **how: Any) -> Callable[[], Round]:
    """Return what measures an engine on two ranks: a prompt's prefill, and a token that follows."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, cores)))
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams

    llm = LLM(
        os.environ["PLAIT_BENCH_MODEL"],
        tensor_parallel_size=2,
        dtype=os.environ.get("PLAIT_BENCH_DTYPE", "bfloat16"),
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
        enable_expert_parallel="PLAIT_BENCH_EXPERTS" in os.environ,
        **how,
    )

    def tokens(prompt: int, count: int) -> tuple[float, list[int]]:
        how = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        done = llm.generate({"prompt_token_ids": list(range(3, 3 + prompt))}, how, use_tqdm=False)
        return time.perf_counter() - begin, list(done[0].outputs[0].token_ids)

    def measure() -> Round:
        few, _ = tokens(8, 1)
        prefill, _ = tokens(options.prompt, 1)
        many, made = tokens(8, 1 + options.generated)
        return {"prefill": prefill, "decode": (many - few) / options.generated}, made

    return measure


def measure_vllm(options: argparse.Namespace) -> None:
    """An engine that plait's plugin serves, or, without the plugin, vLLM's own layers."""
    engine = {"engine": make_engine(options)}
    write(options, {"engine": in_turns(options.rounds, engine)}, "vllm-cpu")


WORK = {
    "megatron": measure_megatron,
    "make": make_llama,
    "make-experts": make_experts,
    "llama": measure_llama,
    "one": measure_one_process,
    "vllm": measure_vllm,
}


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=WORK)
    parser.add_argument("--json", type=Path, required=True)
    add_sizes(parser)
    options = parser.parse_args()
    WORK[options.work](options)


if __name__ == "__main__":
    main()
