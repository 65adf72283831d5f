"""Two ranks on one GPU, each a thread with a stream of torch's: every plan gives the same bits."""

import os
import sys

# Streams of two ranks in one queue of the driver would wait for one another.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch

import plait

M, N, K = 2048, 4096, 4096  # rows of all ranks; outputs and inputs of each rank's weight
WORLD = 2
PLANS = ["fused", "pipelined parts=4", "serial"]
CALLS = [plait.matmul_reduce_scatter, plait.matmul_all_reduce, plait.all_gather_matmul]


def make(rows: int) -> torch.Tensor:
    """Make random rows of K elements, whose products are of the size of 1."""
    values = torch.randn(rows, K, device="cuda") / K**0.25
    return values.to(torch.bfloat16)


def rows_of(x: torch.Tensor, rank: int) -> torch.Tensor:
    return x[rank * M // WORLD : (rank + 1) * M // WORLD]


class Case:
    """One operator with one plan: operands of all ranks, and what torch makes of them in f32."""

    def __init__(self, xs: list[torch.Tensor], weights: list[torch.Tensor], name: str) -> None:
        everything = sum(x.float() @ w.float().t() for x, w in zip(xs, weights, strict=True))
        assert isinstance(everything, torch.Tensor)
        self.xs, self.weights = xs, weights
        self.gathered: list[torch.Tensor | None] = [None] * WORLD
        if name == "matmul_reduce_scatter":
            self.expected = [rows_of(everything, rank) for rank in range(WORLD)]
        elif name == "matmul_all_reduce":
            self.expected = [everything] * WORLD
        else:
            self.expected = [xs[0].float() @ w.float().t() for w in weights]
            self.xs = [rows_of(xs[0], rank) for rank in range(WORLD)]
            self.gathered = [torch.full_like(xs[0], torch.nan) for _ in range(WORLD)]
        self.outs = [torch.full_like(one, torch.nan, dtype=torch.bfloat16) for one in self.expected]


def check(name: str, cases: dict[str, Case], whole_x: torch.Tensor) -> None:
    errors = [0.0]
    for plan, case in cases.items():
        for rank, out in enumerate(case.outs):
            assert torch.equal(out, cases["serial"].outs[rank]), f"{name}: {plan} is not as serial"
            gathered = case.gathered[rank]
            assert gathered is None or torch.equal(gathered, whole_x), f"{name}: {plan}: gathered x"
            expected = case.expected[rank]
            errors.append(float((out - expected).abs().max() / expected.abs().max()))
    assert max(errors) < 2**-8, f"{name}: off from torch by {max(errors):.1e} of the largest"
    print(f"{name}: {', '.join(cases)}: the same bits, off from torch's f32 by {max(errors):.1e}")


def main() -> None:
    torch.manual_seed(1)
    xs, weights = [make(M) for _ in range(WORLD)], [make(N) for _ in range(WORLD)]
    # All that torch does comes before and after: a kernel that is loaded may wait for the GPU, and
    # a rank's kernels on it for the other rank.
    cases = {
        call.__name__: {plan: Case(xs, weights, call.__name__) for plan in PLANS} for call in CALLS
    }
    torch.cuda.synchronize()

    def rank(comm: plait.Communicator) -> None:
        me = comm.rank
        weight = plait.WeightView(weights[me], "out_in")
        with torch.cuda.stream(torch.cuda.Stream()):
            for call in CALLS:
                for plan, case in cases[call.__name__].items():
                    # In torch's current stream.
                    call(
                        case.xs[me],
                        weight,
                        case.outs[me],
                        comm,
                        plan=plan,
                        gathered=case.gathered[me],
                    )
            torch.cuda.current_stream().synchronize()

    plait.run_in_threads(WORLD, rank)
    for name, plans in cases.items():
        check(name, plans, xs[0])


if not torch.cuda.is_available():
    print("there is no GPU that torch can use")
    sys.exit(77)
main()
