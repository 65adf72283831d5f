"""Compares plait's products of experts with torch's and vLLM's, in pairs that take turns.

python bench/python/grouped.py [--threads T] [--pairs N] [--vllm] [--tokens T,...] [--model M]

plait.grouped_matmul beside torch's grouped product; with --vllm a whole layer of experts, packed,
beside vLLM's cpu_fused_moe, which needs the environment of `./do test vllm`. Prints a line for each
shape: the medians of both, and the median of the pairs' ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import plait
import plait.torch

SHAPES = {  # n, k, experts, top
    "qwen3-30b-a3b": (1536, 2048, 128, 8),
    "deepseek-v2-lite": (2816, 2048, 64, 6),
    "gpt-oss-quarter": (1440, 720, 32, 4),
}


def rows_of(experts: int, top: int, tokens: int) -> list[int]:
    generator = torch.Generator().manual_seed(1)
    chosen = torch.rand(tokens, experts, generator=generator).topk(top).indices
    return torch.bincount(chosen.flatten(), minlength=experts).tolist()


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def compare(name: str, dtype: torch.dtype, tokens: int, options: argparse.Namespace) -> None:
    n, k, experts, top = SHAPES[name]
    weight = torch.randn(experts, n, k).to(dtype)
    packed = [plait.PackedWeight(one, layout=plait.WeightLayout.out_in) for one in weight]
    rows = rows_of(experts, top, tokens)
    x = torch.randn(sum(rows), k).to(dtype)
    out = torch.zeros(sum(rows), n, dtype=dtype)
    ends = torch.tensor(rows).cumsum(0).to(torch.int32)
    turned = weight.transpose(1, 2)

    def ours() -> None:
        plait.grouped_matmul(x, packed, rows, out, threads=options.threads)

    def theirs() -> torch.Tensor:
        return torch.nn.functional.grouped_mm(x, turned, offs=ends)

    ours()
    expected = theirs().float()
    # Both add k products in f32, in an order of their own, and round the sum.
    magnitude = torch.nn.functional.grouped_mm(x.abs(), turned.abs(), offs=ends).float()
    bound = 2 * k * 2.0**-24 * magnitude + torch.finfo(dtype).eps * expected.abs()
    assert bool(((out.float() - expected).abs() <= bound).all()), f"{name} {dtype}: wrong results"
    print_pairs(f"{name} {dtype} tokens {tokens}", ours, theirs, "torch", options.pairs)


def compare_layer(name: str, dtype: torch.dtype, tokens: int, options: argparse.Namespace) -> None:
    """Multiply twice with the activation between, and combine, on one rank that has all experts."""
    from vllm import _custom_ops as ops

    both, hidden, experts, top = SHAPES[name]
    if both % 64 or hidden % 32:
        print(f"{name}: vLLM takes sizes in multiples of 32 alone")
        return
    generator = torch.Generator().manual_seed(1)
    up = torch.randn(experts, both, hidden, generator=generator).to(dtype) / hidden**0.5
    down = torch.randn(experts, hidden, both // 2, generator=generator).to(dtype) / both**0.5
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    weights, ids = torch.rand(tokens, experts, generator=generator).topk(top)
    isa = "amx" if torch.cpu._is_amx_tile_supported() and dtype == torch.bfloat16 else "vec"
    first, second = (ops.cpu_prepack_moe_weight(one, isa) for one in (up, down))
    theirs_out = torch.empty_like(x)
    layer = plait.torch.ExpertParallel(
        up, down, experts=experts, options=plait.torch.Options(fixed_weights=True)
    )
    numbers = ids.to(torch.int32)

    def ours() -> torch.Tensor:
        out: torch.Tensor = layer(x, ids, weights)
        return out

    def theirs() -> None:
        ops.cpu_fused_moe(theirs_out, x, first, second, None, None, weights, numbers, "silu", isa)

    with torch.no_grad():
        out = ours()
        theirs()
        bound = 1e-3 if dtype == torch.float32 else 5e-2
        off = float((out - theirs_out).abs().max() / out.abs().max())
        assert off < bound, f"{name} {dtype}: results differ by {off}"
        print_pairs(f"{name} {dtype} tokens {tokens}", ours, theirs, "vllm", options.pairs)


def print_pairs(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], whose: str, count: int
) -> None:
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(count)]
    mine, other = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"{what:44} plait {mine:9.3f} ms  {whose} {other:9.3f} ms  {ratio:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--tokens", default="1,4,16,512")
    parser.add_argument("--model", choices=SHAPES, help="without, all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in [options.model] if options.model else SHAPES:
        for dtype in (torch.bfloat16, torch.float32):
            for tokens in map(int, options.tokens.split(",")):
                (compare_layer if options.vllm else compare)(name, dtype, tokens, options)


if __name__ == "__main__":
    main()
