"""Checks plait.torch on one GPU, and prints a line for each thing proved.

    python3 python/tests/gpu/torch_check.py

One rank runs the engine "c10d" over NCCL and plait's kernels. Two ranks are processes that share
the GPU, which NCCL refuses: they run plait's kernels, and the engine over gloo. Operands are small
whole numbers whose sums bfloat16 can hold, so that every result must be exact. It ends with the
status 77 where there is no GPU, and with 1 where something has failed. A line that begins with "--"
says what could not be tried, and why.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore

import plait
import plait.torch as pt
from plait import _native

GPU = torch.device("cuda:0")
BF16 = torch.bfloat16
LIMIT = 60  # seconds of each part
C10D = pt.Options(engine="c10d", schedule="pipelined", parts=3)
SERIAL = pt.Options(engine="c10d", schedule="serial")
NATIVE = pt.Options()
KERNELS, TORCHS = "plait's kernels on the GPU", "torch's product and collectives"
OWN = ["matmul_all_reduce", "matmul_reduce_scatter", "all_gather_matmul"]
OTHERS = ["matmul_all_gather", "reduce_scatter_matmul", "all_reduce_matmul"]
# With ODD, two ranks have unequal numbers of rows, outputs and inputs, also after these are filled
# up to multiples of 8.
SMALL, ODD, LARGE = (64, 96, 48), (37, 71, 33), (2048, 1536, 1024)

failures: list[str] = []


class NotServed(Exception):
    """The check can't be made, for a reason outside of plait."""


def rank() -> int:
    return dist.get_rank()


def say(text: str) -> None:
    if rank() == 0:
        print(text, flush=True)


@contextmanager
def proving(what: str) -> Iterator[None]:
    """Print what the block proves, or why it failed: of ranks, the first that fails is named."""
    try:
        yield
        torch.cuda.synchronize()
    except NotServed as error:
        say(f"--  {what}: {error}")
    except Exception as error:
        failures.append(what)
        print(f"FAILED {what}: rank {rank()}: {type(error).__name__}: {error}", flush=True)
    else:
        say(f"ok  {what}")


def numbers(shape: tuple[int, ...], seed: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Numbers of -1, 0 and 1 that all ranks have alike."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, shape, generator=generator).to(GPU, dtype)


def shard(size: int, of: int | None = None) -> slice:
    part = _native.balanced_shard(size, rank() if of is None else of, dist.get_world_size())
    return slice(part.offset, part.offset + part.count)


def expect(found: torch.Tensor | None, exact: torch.Tensor, what: str) -> None:
    assert found is not None, f"{what} is missing"
    assert found.shape == exact.shape, f"{what} is {list(found.shape)}, not {list(exact.shape)}"
    off = (found.double() - exact).abs().max().item() if exact.numel() else 0.0
    assert off == 0, f"{what} is off by {off}"


class Problem:
    """An operator, or a layer with its gradients, and what it comes to in f64."""

    def __init__(self, name: str, sizes: tuple[int, int, int], dtype: torch.dtype = BF16) -> None:
        m, n, k = sizes
        self.name = name
        x, w = numbers((m, k), 1, dtype), numbers((n, k), 2, dtype)
        bias, grad = numbers((n,), 3, dtype), numbers((m, n), 4, dtype)
        everything = slice(None)
        rows, inputs, outputs = shard(m), (everything, shard(k)), shard(n)
        x64, w64, grad64, bias64 = x.double(), w.double(), grad.double(), bias.double()
        self.more: dict[str, Any] = {}
        cut_x: Any = everything
        cut_w: Any = everything
        cut_b: Any = everything
        cut_g: Any = everything
        taken = everything  # the rows that make the gradient of the weight
        if name in ("matmul_all_reduce", "matmul_reduce_scatter", "row", "row sequence"):
            cut_x = cut_w = inputs
            if name in ("matmul_reduce_scatter", "row sequence"):
                cut_g = rows
        elif name in ("all_gather_matmul", "column", "column sequence"):
            cut_x = everything if name == "column" else rows
            cut_w = cut_b = outputs
            cut_g = (everything, outputs)
            if name != "column":
                self.more = {"rows": m}
        elif name == "matmul_all_gather":
            cut_x, self.more, taken = rows, {"rows": m}, rows
        else:  # x is added up: all ranks have the same here
            x64 = x64 * dist.get_world_size()
            if name == "reduce_scatter_matmul":
                cut_g = taken = rows
        self.x, self.w = (one.clone().requires_grad_() for one in (x[cut_x], w[cut_w]))
        self.bias, self.grad = bias[cut_b].clone().requires_grad_(), grad[cut_g]
        self.out = (x64 @ w64.t() + bias64)[cut_g]
        self.grad_x = (grad64 @ w64)[cut_x]
        self.grad_w = (grad64[taken].t() @ x64[taken])[cut_w]
        # It is made of the rows that this rank has a gradient of.
        whole = grad64 if name in ("row", "row sequence", "column", "column sequence") else None
        self.grad_bias: torch.Tensor | None = None if whole is None else whole.sum(0)[cut_b]

    def call(self, options: pt.Options, group: Any = None) -> torch.Tensor:
        how: dict[str, Any] = {"options": options, "group": group, **self.more}
        kind, _, sequence = self.name.partition(" ")
        if kind in ("row", "column"):
            function = pt.row_parallel_linear if kind == "row" else pt.column_parallel_linear
            how["sequence_parallel"] = bool(sequence)
        else:
            function = getattr(pt, kind)
        out: torch.Tensor = function(self.x, self.w, self.bias, **how)
        return out

    def check(self, options: pt.Options, by: str, group: Any = None) -> None:
        """Run forward and backward, and see that the right one served them."""
        pt.forget_report()
        out = self.call(options, group)
        expect(out.detach(), self.out, f"{self.name}: the result")
        out.backward(self.grad)
        expect(self.x.grad, self.grad_x, f"{self.name}: the gradient of x")
        expect(self.w.grad, self.grad_w, f"{self.name}: the gradient of the weight")
        if self.grad_bias is not None:
            expect(self.bias.grad, self.grad_bias, f"{self.name}: the gradient of the bias")
        function = self.name.split()[0]
        others = [what for what, _ in pt.report().others if what.startswith(function)]
        assert others, f"the report does not name {self.name}"
        assert by in others[0], f"{self.name} was served by {others[0]!r}"


LAYERS = ["column", "column sequence", "row", "row sequence"]


def all_problems(names: list[str], sizes: list[tuple[int, int, int]], *how: Any) -> None:
    for name in names:
        for size in sizes:
            Problem(name, size).check(*how)


def in_a_side_stream(options: pt.Options, names: list[str]) -> None:
    """Write the operands late in the stream, so that a kernel that does not wait reads NaN."""
    for name in names:
        problem, side = Problem(name, LARGE), torch.cuda.Stream()
        problem.call(options)  # makes mailboxes and loads kernels
        values = problem.x.detach().clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            with torch.no_grad():
                problem.x.fill_(torch.nan)
                torch.cuda._sleep(50_000_000)
                problem.x.copy_(values)
            out = problem.call(options)
            grads = torch.autograd.grad(out, (problem.x, problem.w), problem.grad)
            used = [one.clone() for one in (out.detach(), *grads)]
        side.synchronize()
        for one, exact in zip(used, (problem.out, problem.grad_x, problem.grad_w), strict=True):
            expect(one, exact, f"{name} in a side stream")


def refused(words: str, call: Callable[..., object], *operands: object, **how: object) -> None:
    try:
        call(*operands, **how)
    except plait.Error as error:
        text = str(error)
        assert words in text, f"the refusal says {text!r}, and not {words!r}"
        assert "\n" not in text, f"the refusal is not one line: {text!r}"
        return
    raise AssertionError(f"nothing was refused that is {words}")


def refusals() -> None:
    x, w = numbers((8, 16), 1), numbers((24, 16), 2)
    bias = torch.zeros(24, dtype=BF16)
    for call in (pt.matmul_all_reduce, pt.column_parallel_linear, pt.row_parallel_linear):
        for options in (NATIVE, SERIAL):
            how: dict[str, Any] = {"options": options}
            refused("x is on cpu, and weight on cuda:0", call, x.cpu(), w, **how)
            refused("x is on cuda:0, and weight on cpu", call, x, w.cpu(), **how)
            refused("x is on cuda:0, and bias on cpu", call, x, w, bias, **how)
            refused("x is torch.float64", call, x.double(), w.double(), **how)
            refused("x is torch.bfloat16", call, x, w.half(), **how)
            refused("x is [8, 15]", call, x[:, 1:], w, **how)
    quantized = pt.quantize(w.float().cpu(), "s8")
    refused("weight is quantised", pt.matmul_all_reduce, x, quantized)


def main_grad() -> None:
    """A product of ones that bfloat16 can't hold must reach an f32 buffer unrounded."""
    for options in (NATIVE, C10D):
        layer = pt.RowParallelLinear.from_linear(
            nn.Linear(16, 24, bias=False).to(GPU, BF16),
            accumulate_into_main_grad=True,
            options=options,
        )
        weight: Any = layer.weight
        weight.main_grad = torch.zeros(weight.shape, device=GPU)
        x = torch.ones(257, 16, device=GPU, dtype=BF16)
        for _ in range(2):
            layer(x).backward(torch.ones(257, 24, device=GPU, dtype=BF16))
        expect(weight.main_grad, torch.full(weight.shape, 514.0, device=GPU), "main_grad")


def other_ways_to_call() -> None:
    problem = Problem("matmul_reduce_scatter", SMALL)
    with torch.autocast("cuda", dtype=BF16):
        out = pt.matmul_reduce_scatter(problem.x.float(), problem.w.float(), problem.bias)
    assert out.dtype is BF16, f"autocast: {out.dtype}"
    expect(out.detach(), problem.out, "autocast")
    compiled = torch.compile(
        lambda x, w, bias: pt.matmul_reduce_scatter(x, w, bias),
        backend="aot_eager",
        fullgraph=True,
    )
    found = compiled(problem.x, problem.w, problem.bias)
    expect(found.detach(), problem.out, "a compiled program")
    found.backward(problem.grad)
    expect(problem.x.grad, problem.grad_x, "a compiled program's gradient")
    batch = numbers((4, 16, 48), 7).transpose(0, 1)
    flat = pt.matmul_all_reduce(batch.reshape(64, 48), problem.w)
    assert torch.equal(pt.matmul_all_reduce(batch, problem.w).reshape(64, -1), flat), "strides"


def in_a_graph() -> None:
    """A captured call gives the right values for other operands."""
    problem = Problem("matmul_all_reduce", SMALL)
    x, w = problem.x.detach(), problem.w.detach()
    pt.matmul_all_reduce(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = pt.matmul_all_reduce(x, w)
    x.neg_()
    graph.replay()
    expect(out, x.double() @ w.double().t(), "a replayed graph")


def one_rank() -> None:
    torch.cuda.set_device(GPU)
    dist.init_process_group("nccl", store=HashStore(), rank=0, world_size=1)
    sizes = [SMALL, ODD, LARGE]
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name(GPU)}")
    with proving("one rank, engine c10d over NCCL, 3 parts: six operators and their gradients"):
        all_problems([*OWN, *OTHERS], sizes, C10D, TORCHS)
    with proving("one rank, engine c10d over NCCL, 3 parts: layers and their gradients"):
        all_problems(LAYERS, sizes, C10D, TORCHS)
    with proving("one rank, engine c10d, serial: operators and layers"):
        all_problems([*OWN, *OTHERS, *LAYERS], [SMALL], SERIAL, TORCHS)
    with proving("one rank, engine c10d: in a side stream, with operands written late"):
        in_a_side_stream(C10D, [*OWN, *OTHERS, "column sequence", "row sequence"])
    with proving("one rank, plait's kernels: three operators and their gradients"):
        all_problems(OWN, sizes, NATIVE, KERNELS)
    with proving("one rank, plait's kernels: layers and their gradients"):
        all_problems(LAYERS, sizes, NATIVE, KERNELS)
    with proving("one rank, plait's kernels: in a side stream, with operands written late"):
        in_a_side_stream(NATIVE, [*OWN, "column sequence", "row sequence"])
    with proving("one rank: what plait has no kernel for goes to torch's products"):
        all_problems(OTHERS, [SMALL, ODD], NATIVE, TORCHS)
        for name in (*OWN, *LAYERS):
            Problem(name, ODD, torch.float32).check(NATIVE, TORCHS)
            Problem(name, ODD, torch.float16).check(NATIVE, KERNELS)
    with proving("one rank: gradients in f32 buffers of bf16 weights"):
        main_grad()
    with proving("one rank: autocast, a compiled program, strides"):
        other_ways_to_call()
    with proving("one rank: refusals, each one sentence"):
        refusals()
    with proving("one rank: a call in a CUDA graph"):
        in_a_graph()


def over_gloo(name: str) -> None:
    with proving(f"two processes, engine c10d over gloo: {name} and its gradients"):
        try:
            for size in (SMALL, ODD):
                Problem(name, size).check(C10D, TORCHS, dist.group.WORLD)
        except RuntimeError as error:
            words = str(error).partition("\n")[0]
            is_limit_of_gloo = "gloo" in words.lower() or "scalar type" in words
            if isinstance(error, plait.Error) or not is_limit_of_gloo:
                raise
            raise NotServed(words) from error


def two_ranks() -> None:
    torch.cuda.set_device(GPU)
    dist.init_process_group("gloo")
    with proving("two processes on one GPU, plait's kernels: three operators and their gradients"):
        all_problems(OWN, [SMALL, ODD, (256, 512, 256)], NATIVE, KERNELS)
    with proving("two processes on one GPU, plait's kernels: layers and their gradients"):
        all_problems(LAYERS, [SMALL], NATIVE, KERNELS)
    with proving("two processes: what the backend 'plait' can't do on a GPU is refused"):
        plaits = dist.new_group(backend="plait")
        problem = Problem("matmul_all_reduce", SMALL, torch.float32)
        refused("make it with the backend 'nccl'", problem.call, NATIVE, plaits)
        problem = Problem("matmul_all_gather", SMALL)
        refused("no kernel for matmul_all_gather", problem.call, NATIVE, plaits)
    for name in (*OWN, *OTHERS):
        over_gloo(name)
    dist.barrier()


def start(mode: str, **environment: str) -> "subprocess.Popen[bytes]":
    fixed = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}  # ranks of one machine
    settings = {**os.environ, **fixed, **environment}
    return subprocess.Popen([sys.executable, __file__, mode], env=settings)


def ends_well(started: list["subprocess.Popen[bytes]"]) -> bool:
    try:
        return all([one.wait(LIMIT) == 0 for one in started])
    except subprocess.TimeoutExpired:
        print(f"FAILED to end within {LIMIT} s", flush=True)
        return False
    finally:
        for one in started:
            one.kill()


def main() -> int:
    if len(sys.argv) > 1:
        {"one": one_rank, "two": two_ranks}[sys.argv[1]]()
        return 1 if failures else 0
    if not torch.cuda.is_available():
        print("there is no GPU that torch can use")
        return 77
    well = ends_well([start("one")])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    well = ends_well([start("two", RANK=str(one), **where) for one in range(2)]) and well
    print("all passed" if well else "some failed", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
