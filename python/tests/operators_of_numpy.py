"""All operators and both layers on arrays of NumPy: what each rank of test_operators.py runs.

Values are small integers, so that every sum is exact and every result is compared bit by bit.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait

Floats = NDArray[np.float32]
OUT_IN, IN_OUT = plait.WeightLayout.out_in, plait.WeightLayout.in_out
PLANS = [plait.Plan(text) for text in ("serial", "pipelined parts=3", "fused")]
M, N, K = 29, 44, 36

comm = plait.Communicator.connect()
RANK, WORLD = comm.rank, comm.world


def numbers(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def own(size: int, rank: int = RANK) -> slice:
    part = plait.balanced_shard(size, rank, WORLD)
    return slice(part.offset, part.offset + part.count)


x, w, bias = numbers(1, M, K), numbers(2, N, K), numbers(3, 1, N)
parts = [numbers(10 + rank, M, K) for rank in range(WORLD)]
summed: Floats = np.sum(parts, axis=0, dtype=np.float32)
whole = x @ w.T + bias

# Name: this rank's x, weight and bias, and what it gets.
PROBLEMS = {
    "matmul_all_reduce": (x[:, own(K)], w[:, own(K)], bias, whole),
    "matmul_reduce_scatter": (x[:, own(K)], w[:, own(K)], bias, whole[own(M)]),
    "matmul_all_gather": (x[own(M)], w, bias, whole),
    "all_gather_matmul": (x[own(M)], w[own(N)], bias[:, own(N)], whole[:, own(N)]),
    "reduce_scatter_matmul": (parts[RANK], w, bias, (summed @ w.T + bias)[own(M)]),
    "all_reduce_matmul": (parts[RANK], w, bias, summed @ w.T + bias),
    "matmul": (x, w, bias, whole),
}


def check(what: str, found: Floats, expected: NDArray[Any]) -> None:
    if not np.array_equal(found, expected):
        sys.exit(f"rank {RANK}: {what} is off by {np.abs(found - expected).max()}")


def check_operator(name: str) -> None:
    rows, weight, row, expected = PROBLEMS[name]
    call = getattr(plait, name)
    op = plait.Operator[name]
    turned = np.ascontiguousarray(weight.T)
    ways: dict[str, plait.WeightView | plait.PackedWeight] = {
        "out_in": plait.WeightView(weight, OUT_IN),
        "in_out": plait.WeightView(turned, IN_OUT),
        "packed": plait.PackedWeight(weight, layout=OUT_IN),
    }
    for how, by in ways.items():
        for plan in {plait.followed_by(op, one) for one in PLANS}:
            out = np.full(expected.shape, np.nan, np.float32)
            call(rows, by, out, comm, bias=row, plan=plan)
            check(f"{name} {how} {plan}", out, expected)
        desc = plait.OpDesc(
            op,
            m=M,
            n=by.n,
            k=by.k,
            x=plait.Dtype.f32,
            weight=plait.WeightKind.of(by),
        )
        prepared = plait.prepare(desc, comm)
        for _ in range(2):
            out = np.full(expected.shape, np.nan, np.float32)
            prepared.run(rows, by, out, bias=row)
            check(f"{name} {how}, prepared", out, expected)


def check_wire() -> None:
    """Partial sums are rounded to the wire: the same bits in every plan, within half a unit."""
    generator = np.random.default_rng(7)
    left, right = (generator.standard_normal(shape) for shape in ((M, K), (N, K)))
    rows = left[:, own(K)].astype(np.float32)
    by = plait.WeightView(right[:, own(K)].astype(np.float32), OUT_IN)
    left, right = left.astype(np.float32), right.astype(np.float32)
    exact = left.astype(float) @ right.T.astype(float)
    sizes = np.abs(left).astype(float) @ np.abs(right.T).astype(float)
    in_f32 = np.ldexp(float(2 * (K + WORLD)), -24)  # of the sums, and of the last rounding
    for wire in (plait.Dtype.bf16, plait.Dtype.f16):
        limit = (plait.unit_roundoff(wire) * (1 + in_f32) + in_f32) * sizes + WORLD * 2.0**-24
        for name, mine in (
            ("matmul_all_reduce", slice(None)),
            ("matmul_reduce_scatter", own(M)),
        ):
            outs = []
            for plan in PLANS:
                outs.append(np.empty_like(exact[mine], np.float32))
                getattr(plait, name)(rows, by, outs[-1], comm, wire=wire, plan=plan)
                check(f"{name} by {plan} in {wire}", outs[-1], outs[0])
            exactly = np.empty_like(outs[0])
            getattr(plait, name)(rows, by, exactly, comm)
            if WORLD > 1 and np.array_equal(exactly, outs[0]):
                sys.exit(f"rank {RANK}: {name} rounds nothing to {wire}")
            if (np.abs(outs[0] - exact[mine]) > limit[mine]).any():
                sys.exit(f"rank {RANK}: {name} in {wire} is off too far")


def check_what_else_calls_take() -> None:
    rows, weight, _, _ = PROBLEMS["all_gather_matmul"]
    by = plait.WeightView(weight, OUT_IN)
    out, gathered = np.empty((M, by.n), np.float32), np.empty((M, K), np.float32)
    asked: list[int] = []
    plans = plait.RecordedPlans(plait.parse_settings("plan = 'pipelined parts=2'"))
    frozen = rows.copy()
    frozen.flags.writeable = False
    plait.all_gather_matmul(
        frozen, by, out, comm, gathered=gathered, plans=plans, poll=lambda: asked.append(1)
    )
    check("gathered", gathered, x)
    assert asked or WORLD == 1, "the poll hook was not called"
    assert [(row.plan, row.calls) for row in plans.rows()] == [(plait.Plan("pipelined parts=2"), 1)]

    share, of_share, _, expected = PROBLEMS["matmul_all_reduce"]
    total = np.empty_like(expected)
    own_part = plait.WeightView(of_share, OUT_IN)
    plans = plait.RecordedPlans(plait.Settings())
    for size in (-1, 1000):  # the sum of the shares; what a caller says that it is
        plait.matmul_all_reduce(
            share, own_part, total, comm, bias=bias, plans=plans, whole_size=size
        )
        check("an operator of a whole size", total, expected)
    assert [row.k for row in plans.rows()] == [K, 1000]

    def gives_up() -> None:
        raise KeyError("enough")

    said = ""
    try:
        plait.all_gather_matmul(frozen, by, out, comm, poll=gives_up if RANK == 0 else None)
        plait.barrier(comm)  # for ranks that had all rows before rank 0 gave up
    except (KeyError, plait.Error) as error:
        said = f"{type(error).__name__}: {error}"
    if WORLD > 1:
        assert said.startswith("KeyError" if RANK == 0 else "Error"), said
        assert "'enough'" in said, said


def check_layers() -> None:
    """A column layer and a row layer, with the gradients of both."""
    up, down = numbers(4, N, K), numbers(5, K, N)
    up_own, down_own = up[own(N)], np.ascontiguousarray(down[:, own(N)])
    grad, hidden = numbers(6, M, K), x @ up.T
    kind = plait.WeightKind(plait.Dtype.f32)
    for sequence_parallel in (True, False):
        shared = own(M) if sequence_parallel else slice(None)
        options = plait.LinearOptions(
            sequence_parallel=sequence_parallel, plan=plait.Plan("pipelined parts=2")
        )
        n = len(up_own)
        column = plait.ColumnParallelLinear(
            plait.LinearDesc(inputs=K, outputs=n, layout=OUT_IN, weight=kind), comm, options
        )
        row = plait.RowParallelLinear(
            plait.LinearDesc(inputs=n, outputs=K, layout=OUT_IN, weight=kind), comm, options
        )
        by_up, by_down = plait.WeightView(up_own, OUT_IN), plait.WeightView(down_own, OUT_IN)
        y = np.empty((M, n), np.float32)
        column.forward(x[shared], by_up, y)
        check("column forward", y, hidden[:, own(N)])
        z = np.empty_like(x[shared])
        row.forward(y, by_down, z)
        check("row forward", z, (hidden @ down.T)[shared])
        grad_y, grad_down = np.empty_like(y), np.empty_like(down_own)
        row.backward(grad[shared], x=y, weight=by_down, grad_x=grad_y, grad_weight=grad_down)
        check("row grad_x", grad_y, (grad @ down)[:, own(N)])
        check("row grad_weight", grad_down, grad.T @ y)
        grad_x, grad_up = np.empty_like(x[shared]), np.empty_like(up_own)
        column.backward(grad_y, x=x[shared], weight=by_up, grad_x=grad_x, grad_weight=grad_up)
        check("column grad_x", grad_x, (grad @ down @ up)[shared])
        check("column grad_weight", grad_up, grad_y.T @ x)
    assert plait.linear_memory(comm).mailboxes > 0


for name in PROBLEMS:
    check_operator(name)
check_layers()
check_wire()
check_what_else_calls_take()  # ends the communicator
sys.stdout.write(f"rank {RANK} of {WORLD}: all is right\n")
