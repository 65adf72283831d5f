"""The Python package beside torch and gloo: what each rank of bench/python/run.sh runs.

Contenders take turns (A B A B ...), and each gets the median of its times on rank 0, where every
call begins when all ranks are there. Bars are what is wanted at least (or at most, of times).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import plait
import plait.torch as pt
from plait import _native

sys.path.insert(0, str(Path(__file__).parents[1]))
import conditions
import report

HAS_AVX512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
Contenders = dict[str, Callable[[], object]]


class Bench:
    """Measures and prints, on all ranks of the default group."""

    def __init__(self, seconds: float, rounds: int, hidden: int, cpp_call: Path | None) -> None:
        self.seconds, self.rounds = seconds, rounds
        self.hidden, self.cpp_call = hidden, cpp_call
        self.gloo = dist.new_group(backend="gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.rows: list[dict[str, Any]] = []

    def alternate(
        self,
        contenders: Contenders,
        batch: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> dict[str, float]:
        """Return the median seconds of each; `batch` calls are measured together."""
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for call in contenders.values():
            call()
        deadline = time.perf_counter() + self.seconds
        while self._goes_on(deadline, len(next(iter(times.values())))):
            for name, call in contenders.items():
                dist.barrier()
                begin = clock()
                for _ in range(batch):
                    call()
                times[name].append((clock() - begin) / batch)
        return {name: statistics.median(all_of) for name, all_of in times.items()}

    def _goes_on(self, deadline: float, rounds: int) -> bool:
        """Let rank 0 decide for all."""
        more = torch.tensor([float(rounds < self.rounds or time.perf_counter() < deadline)])
        dist.broadcast(more, 0)
        return bool(more.item())

    def add(self, what: str, found: dict[str, float], ratio: float, bar: float | None) -> None:
        """Keep a row: a ratio that is to be no less than its bar."""
        self._add(what, {**found, "ratio": ratio}, {"of": "ratio", "at least": bar})

    def add_time(self, what: str, seconds: float, bar: float | None) -> None:
        """Keep a row: a time that is to be no more than its bar; without one it is torch's own."""
        self._add(what, {"torch" if bar is None else "plait": seconds}, {"at most": bar})

    def _add(self, what: str, values: dict[str, float], bar: dict[str, Any]) -> None:
        unit = {name: "s" for name in values if name != "ratio"}
        self.rows.append({"what": {"what": what}, "values": values, "unit": unit, "bar": bar})
        if self.rank == 0:
            print(f"measured: {what}", file=sys.stderr, flush=True)


def collectives(bench: Bench) -> None:
    """Compare the backend "plait" with gloo."""
    cases: list[tuple[str, tuple[int, int], torch.dtype, float | None]] = [
        ("all_reduce", (1, 4096), torch.float32, 20),
        ("reduce_scatter", (512, 4096), torch.float32, 4),
        ("all_gather", (512, 4096), torch.float32, 4),
        ("all_reduce", (2048, 4096), torch.bfloat16, 3),
        ("all_reduce", (2048, 4096), torch.float32, None),  # beside bf16, without a bar
    ]
    for name, (rows, columns), dtype, bar in cases:
        # The elements are zeros because sums in place then stay what they are.
        whole = torch.zeros(rows, columns, dtype=dtype)
        own = torch.zeros(rows // bench.world, columns, dtype=dtype) if rows > 1 else whole
        found = bench.alternate(
            {
                "plait": collective(name, whole, own, None),
                "gloo": collective(name, whole, own, bench.gloo),
            }
        )
        short = str(dtype).removeprefix("torch.")
        what = f"{name} {rows}x{columns} {short}"
        bench.add(what, found, found["gloo"] / found["plait"], bar)


def collective(
    name: str, whole: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup | None
) -> Callable[[], object]:
    """Return a call of a collective over a group."""
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_single(own, whole, group=group)
    return lambda: dist.all_gather_single(whole, own, group=group)


class _Copied(torch.autograd.Function):
    """The input of a column layer: its gradient is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _Summed(torch.autograd.Function):
    """The output of a row layer is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def layers(bench: Bench) -> None:
    """Compare the four linear layers of a block, forward and backward, with torch over gloo."""
    hidden, world = bench.hidden, bench.world
    for dtype in (torch.float32, torch.bfloat16):
        sizes = [(3, 1), (1, 1), (4, 1), (1, 4)]  # outputs and inputs, in hidden sizes
        kinds = ["column", "row", "column", "row"]
        modules: list[torch.nn.Module] = []
        for (outputs, inputs), kind in zip(sizes, kinds, strict=True):
            shape = [outputs * hidden, inputs * hidden]
            shape[kind == "row"] //= world
            weight = (torch.randn(shape) / hidden**0.5).to(dtype).requires_grad_()
            made = pt.ColumnParallelLinear if kind == "column" else pt.RowParallelLinear
            modules.append(
                made(
                    weight,
                    None,
                    group=None,
                    sequence_parallel=False,
                    skip_bias_add=False,
                    accumulate_into_main_grad=False,
                    options=pt.Options(),
                )
            )
        for rows in (512, 256):
            _block(bench, modules, kinds, rows, dtype)


def _block(
    bench: Bench, modules: list[torch.nn.Module], kinds: list[str], rows: int, dtype: torch.dtype
) -> None:
    inputs = [
        torch.randn(rows, int(module.weight.shape[1]), dtype=dtype, requires_grad=True)
        for module in modules
    ]
    grads = [torch.ones(rows, int(module.weight.shape[0]), dtype=dtype) for module in modules]

    def by_plait(module: torch.nn.Module, kind: str, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = module(x)
        return out

    def by_torch(module: torch.nn.Module, kind: str, x: torch.Tensor) -> torch.Tensor:
        weight = module.weight
        if kind == "row":
            out: Any = _Summed.apply(torch.nn.functional.linear(x, weight), bench.gloo)
        else:
            out = torch.nn.functional.linear(_Copied.apply(x, bench.gloo), weight)
        return out

    def step(layer: Callable[[torch.nn.Module, str, torch.Tensor], torch.Tensor]) -> None:
        for module, kind, x, grad in zip(modules, kinds, inputs, grads, strict=True):
            module.weight.grad = x.grad = None
            layer(module, kind, x).backward(grad)

    found = bench.alternate(
        {"plait": lambda: step(by_plait), "torch + gloo": lambda: step(by_torch)}
    )
    bf16_bar = 1.3 if HAS_AVX512 else 4.0
    bars = {(torch.float32, 512): 1.15, (torch.float32, 256): 1.05, (torch.bfloat16, 512): bf16_bar}
    what = f"layers, {rows} rows, hidden {bench.hidden}, {str(dtype).removeprefix('torch.')}"
    bench.add(what, found, found["torch + gloo"] / found["plait"], bars.get((dtype, rows)))


class _Nothing(torch.autograd.Function):
    """An operator with a gradient that makes a result without values."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x.new_empty(1, 16)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ctx.saved_tensors


_NOTHING = torch.library.Library("plait_bench", "DEF")
_NOTHING.define(
    "nothing(Tensor x, Tensor weight, Tensor? bias, str group, "
    'str schedule="", int parts=0, str wire="", bool turned=False) -> Tensor'
)
_NOTHING.impl("nothing", lambda x, *others: x.new_empty(1, 16), "CPU")


def call(bench: Bench) -> None:
    """Measure how much longer an operator of torch takes than the same call in C++.

    Two operators that do nothing show what torch itself takes: one of torch.library, and one with
    a gradient that saves two tensors.

    The group has one rank, so no call waits. The CPU time of the thread counts, without that of
    other programs. Without the program of call.cc, the native module's call takes its place; its
    time includes the binding.
    """
    alone = [dist.new_group([rank]) for rank in range(bench.world)][bench.rank]
    comm = pt.communicator(alone)
    x, w, y = torch.ones(1, 16), torch.ones(16, 16), torch.empty(1, 16)
    f32 = plait.Dtype.f32
    views = [_native.TensorView(one.data_ptr(), f32, *one.shape, one.shape[1]) for one in (x, w, y)]
    weight = _native.WeightView(views[1], plait.WeightLayout.out_in)
    plans = _native.RecordedPlans(plait.parse_settings("plan = 'serial'"))
    options = pt.Options(schedule="serial")

    def native() -> None:
        _native.matmul_all_reduce(views[0], weight, views[2], comm, plans=plans)

    def functional() -> None:  # no operand requires a gradient
        pt.matmul_all_reduce(x, w, group=alone, options=options)

    trained, weights = x.clone().requires_grad_(), w.clone().requires_grad_()

    def differentiated() -> None:
        pt.matmul_all_reduce(trained, weights, group=alone, options=options)

    def by_name() -> None:
        with torch.no_grad():
            torch.ops.plait.matmul_all_reduce(x, w, None, alone.group_name, "serial")

    calls: Contenders = {
        "plait.matmul_all_reduce": native,
        "torch.ops.plait.matmul_all_reduce": by_name,
        "plait.torch.matmul_all_reduce": functional,
        "plait.torch.matmul_all_reduce with gradients": differentiated,
    }
    empty = {
        "torch.ops, an operator that does nothing": lambda: torch.ops.plait_bench.nothing(
            x, w, None, alone.group_name, "serial"
        ),
        "autograd.Function, an operator that does nothing": lambda: _Nothing.apply(
            trained, weights
        ),
    }
    before = seconds_in_cpp(bench)
    found = bench.alternate({**calls, **empty}, batch=100, clock=time.thread_time)
    after = seconds_in_cpp(bench)
    base, of = found["plait.matmul_all_reduce"], "the native module's"
    if before is not None and after is not None:
        base, of = (before + after) / 2, "C++"
    for name in calls:
        if of == "C++" or name != "plait.matmul_all_reduce":
            bench.add_time(f"{name} above {of}", max(found[name] - base, 1e-9), 1e-5)
    for name in empty:
        bench.add_time(name, found[name], None)


def experts(bench: Bench) -> None:
    """Measure how much longer a decode's call of experts takes in Python than its native layer."""
    alone = [dist.new_group([rank]) for rank in range(bench.world)][bench.rank]
    up, down = (torch.ones(8, *one, dtype=torch.bfloat16) for one in ((64, 64), (64, 32)))
    options = pt.Options(fixed_weights=True)
    layer = pt.ExpertParallel(up, down, experts=8, group=alone, options=options)
    x, ids, weights = torch.ones(1, 64).bfloat16(), torch.tensor([[1, 5]]), torch.ones(1, 2)
    out = torch.empty_like(x)
    views = [_native.TensorView(one.data_ptr(), plait.Dtype.bf16, 1, 64, 64) for one in (x, out)]
    packed = tuple(
        [plait.PackedWeight(one, layout=plait.WeightLayout.out_in) for one in stack]
        for stack in (up, down)
    )
    native = _native._Experts(
        pt.communicator(alone),
        hidden=64,
        inner=32,
        experts=8,
        top=2,
        parts=1,
        dtype="bf16",
        wire="bf16",
        is_packed=True,
        layout="out_in",
        activation="swiglu",
        alpha=1.0,
        limit=None,
        added=0.0,
        weighted=False,
        ranks=[0] * 8,
        plans=None,
        replicated=False,
        threads=0,
        backend="",
    )
    stacks = (*packed, None, None)

    def in_cpp() -> None:
        native.forward(views[0], ids.data_ptr(), weights.data_ptr(), stacks, views[1], False)

    with torch.no_grad():
        calls: Contenders = {"native": in_cpp, "module": lambda: layer(x, ids, weights)}
        found = bench.alternate(calls, batch=100, clock=time.thread_time)
    above = max(found["module"] - found["native"], 1e-9)
    bench.add_time("plait.torch.ExpertParallel above its native layer", above, 2e-5)


def seconds_in_cpp(bench: Bench) -> float | None:
    """Return what the call takes in the program of call.cc; None: there is no such program."""
    if bench.cpp_call is None:
        return None
    found = torch.zeros(1, dtype=torch.float64)
    if bench.rank == 0:
        done = subprocess.run([bench.cpp_call], capture_output=True, text=True, check=True)
        found[0] = float(done.stdout)
    dist.broadcast(found, 0)
    return found.item()


def importing(bench: Bench) -> None:
    """Measure `import plait` in processes of its own."""
    program = "import time; t = time.perf_counter(); import plait; print(time.perf_counter() - t)"
    times = []
    if bench.rank == 0:
        for _ in range(7):
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout))
    dist.barrier()
    bench.add_time("import plait", statistics.median(times) if times else 0.0, 0.150)


def packing(bench: Bench) -> None:
    """Compare packing a weight into memory that is there with copying it."""
    for dtype in (torch.float32, torch.bfloat16):
        w = torch.randn(4096, 4096).to(dtype)
        copy = torch.empty_like(w)
        known = plait.Dtype.f32 if dtype is torch.float32 else plait.Dtype.bf16
        rows = _native.TensorView(w.data_ptr(), known, *w.shape, w.shape[1])
        view = _native.WeightView(rows, plait.WeightLayout.out_in)
        packed = _native.PackedWeight(view)

        def repack(packed: Any = packed, view: Any = view) -> None:
            packed.repack(view, threads=torch.get_num_threads())

        def copies(copy: torch.Tensor = copy, w: torch.Tensor = w) -> None:
            copy.copy_(w)

        found = bench.alternate({"plait": repack, "copy": copies})
        what = f"packing 4096x4096 {str(dtype).removeprefix('torch.')}, of a copy's speed"
        bench.add(what, found, found["copy"] / found["plait"], 0.5)


PARTS = {
    "collectives": collectives,
    "layers": layers,
    "call": call,
    "experts": experts,
    "import": importing,
    "packing": packing,
}


def where() -> dict[str, Any]:
    """Name the machine and the versions."""
    info = subprocess.run(
        [sys.executable, "-m", "plait", "info"], capture_output=True, text=True, check=False
    ).stdout
    uses = [line.split()[1] for line in info.splitlines() if line.strip().startswith("uses ")]
    return {
        **conditions.now(),
        "plait": plait.__version__,
        "plait uses": uses[0] if uses else os.environ.get("PLAIT_ISA", "unknown"),
        "torch": torch.__version__,
        "torch uses": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "ranks": dist.get_world_size(),
    }


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, at least")
    parser.add_argument("--hidden", type=int, default=4096, help="of the block's layers")
    parser.add_argument("--only", default=",".join(PARTS), help="a list of " + ", ".join(PARTS))
    parser.add_argument("--cpp-call", type=Path, help="the program of bench/python/call.cc")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    pt.init("plait")
    bench = Bench(arguments.seconds, arguments.rounds, arguments.hidden, arguments.cpp_call)
    for name in arguments.only.split(","):
        PARTS[name](bench)
    if bench.rank == 0:
        found = where()
        with tempfile.TemporaryDirectory() as folder:
            file = arguments.json or Path(folder) / "python.json"
            table = f"plait uses {found['plait uses']}"
            rows = [{"table": table, **row} for row in bench.rows]
            report.write(file, {"conditions": found, "rows": rows})
            print(report.Results([file]).text())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
