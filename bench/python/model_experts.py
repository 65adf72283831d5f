"""Compares plait's experts in a Qwen3-MoE with transformers' own over gloo, in turns.

torchrun --standalone --nproc-per-node 2 bench/python/model_experts.py [--rounds N] [--enabled]

Everything but experts is computed by every rank alike. With --enabled both have the plan that the
model comes with, which shares attention too: plait as enable(fixed_weights=True) serves it, and
transformers as it is. The prefill of 512 tokens is compared with
the all-to-all of transformers, and a step of one token with its all-reduce. Prints medians of a
round's slowest rank: of the whole model, and of the experts within it.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed
from transformers.distributed import DistributedConfig

import plait.transformers

CONFIG = Qwen3MoeConfig(
    hidden_size=1024,
    moe_intermediate_size=384,
    num_experts=32,
    num_experts_per_tok=8,
    num_hidden_layers=4,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=4096,
)
TOKENS = 512


class Timed:
    """A model, and the time that its experts take."""

    def __init__(self, folder: str, dtype: torch.dtype, implementation: str, enabled: bool) -> None:
        names = ["lm_head", "model.embed_tokens"]
        names += [f"model.{name}" for name in CONFIG.base_model_tp_plan]
        world = dist.get_world_size()
        how = DistributedConfig(
            tp_size=world,
            tp_plan=None if enabled else dict.fromkeys(names, "replicate"),
            ep_size=world,
            ep_implementation=implementation,
        )
        serves = enabled and implementation == "plait"
        with plait.transformers.enabled(fixed_weights=True) if serves else contextlib.nullcontext():
            self.model: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, distributed_config=how
            )
        self.seconds = 0.0
        for layer in self.model.model.layers:
            self._watch(layer.mlp.experts)

    def _watch(self, experts: Any) -> None:
        theirs = experts.forward

        def forward(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            out = theirs(*given, **named)
            self.seconds += time.perf_counter() - begin
            return out

        experts.forward = forward

    def run(self, tokens: torch.Tensor, cache: Any) -> tuple[float, float]:
        """Return the seconds of the model and of its experts, of the slowest rank."""
        self.seconds = 0.0
        dist.barrier()
        begin = time.perf_counter()
        self.model(tokens, past_key_values=cache, use_cache=cache is not None)
        times = torch.tensor([time.perf_counter() - begin, self.seconds])
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        whole, experts = times.tolist()
        return whole, experts


def compare(
    folder: str, dtype: torch.dtype, rows: int, theirs: str, options: argparse.Namespace
) -> None:
    models = [Timed(folder, dtype, one, options.enabled) for one in ("plait", theirs)]
    rounds = options.rounds if rows > 1 else 8 * options.rounds
    tokens = torch.arange(rows)[None] % CONFIG.vocab_size
    caches: list[Any] = [None, None]
    if rows == 1:  # after a prompt
        prompt = torch.arange(16)[None]
        caches = [one.model(prompt, use_cache=True).past_key_values for one in models]
    for one, cache in zip(models, caches, strict=True):
        for _ in range(3):
            one.run(tokens, cache)
    found: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds):
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            found[index].append(models[index].run(tokens, caches[index]))
    if dist.get_rank() != 0:
        return
    words = [f"{str(dtype).removeprefix('torch.')}, {rows} rows, beside {theirs}:"]
    for place, what in enumerate(("model", "experts")):
        ours, other = (statistics.median(one[place] for one in its) * 1e3 for its in found)
        ratio = statistics.median(b[place] / a[place] for a, b in zip(*found, strict=True))
        words.append(f"{what} {ours:.2f} ms, theirs {other:.2f} ms, {ratio:.2f} times as fast;")
    print(" ".join(words).removesuffix(";"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--enabled", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_grad_enabled(False)
    set_seed(0)
    folder = tempfile.TemporaryDirectory()
    name = [folder.name]
    if dist.get_rank() == 0:
        Qwen3MoeForCausalLM(CONFIG).save_pretrained(folder.name)
    dist.broadcast_object_list(name)
    for dtype in (torch.float32, torch.bfloat16):
        compare(name[0], dtype, TOKENS, "all_to_all", options)
        compare(name[0], dtype, 1, "all_reduce", options)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
