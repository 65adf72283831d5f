"""Operators and layers under their C++ names, on arrays of NumPy."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launching import completed

import plait

PROGRAM = Path(__file__).parent / "operators_of_numpy.py"
OUT_IN = plait.WeightLayout.out_in


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_operator_and_both_layers(ranks: int) -> None:
    run = [sys.executable, "-m", "plait", "run", "-n", str(ranks), "--", sys.executable]
    assert completed(*run, PROGRAM).stdout.count("all is right") == ranks


OPERATORS: list[Callable[..., None]] = [
    plait.matmul,
    plait.matmul_all_reduce,
    plait.matmul_reduce_scatter,
    plait.matmul_all_gather,
    plait.all_gather_matmul,
    plait.reduce_scatter_matmul,
    plait.all_reduce_matmul,
]


def operands(**given: Any) -> dict[str, Any]:
    w = np.ones((4, 6), np.float32)
    usual: dict[str, Any] = {
        "x": np.ones((2, 6), np.float32),
        "weight": plait.WeightView(w, OUT_IN),
        "out": np.full((2, 4), 7, np.float32),
    }
    return {**usual, **given}


READ_ONLY = np.full((2, 4), 7, np.float32)
READ_ONLY.flags.writeable = False

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "x of f64": ({"x": np.ones((2, 6))}, "x is float64; plait computes with"),
    "x a list": ({"x": [[1.0] * 6] * 2}, "x is of type list; it can be an array or a TensorView"),
    "x turned": ({"x": np.ones((6, 2), np.float32).T}, "x has rows whose elements are 2 apart"),
    "x too wide": ({"x": np.ones((2, 7), np.float32)}, "x is 2 x 7, not 2 x 6"),
    "weight bare": ({"weight": np.ones((4, 6), np.float32)}, "weight is neither a PackedWeight"),
    "out read-only": ({"out": READ_ONLY}, "out is read-only, and the call writes it"),
    "out too small": ({"out": np.ones((2, 3), np.float32)}, "out is 2 x 3, not 2 x 4"),
    "x in another byte order": (
        {"x": np.ones((2, 6), np.dtype(np.float32).newbyteorder())},
        "x is .f4, whose bytes are in another order",
    ),
    "bias too long": ({"bias": np.ones((1, 5), np.float32)}, "bias is 1 x 5, not 1 x 4"),
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_argument_and_value(operator: Callable[..., None], case: str) -> None:
    given, sentence = REFUSED[case]
    taken = operands(**given)
    before = np.copy(taken["out"])
    with plait.Communicator.connect() as comm:
        with pytest.raises(plait.Error, match=sentence) as caught:
            operator(**taken, comm=comm)
        assert caught.value.code is plait.Code.invalid_argument
        assert caught.value.operator == operator.__name__
    assert np.array_equal(taken["out"], before)


def test_a_prepared_operator_outlives_its_communicator_in_words() -> None:
    comm = plait.Communicator.connect()
    desc = plait.OpDesc(plait.Operator.matmul_all_reduce, m=2, n=4, k=6, x=plait.Dtype.f32)
    assert str(desc.weight) == "f32:plain"
    op = plait.prepare(desc, comm, plan=plait.Plan("serial"))
    assert (op.plan, op.desc.k) == (plait.Plan("serial"), 6)
    op.run(**operands())
    comm.leave()
    with pytest.raises(plait.Error, match="has been left"):
        op.run(**operands())
    with pytest.raises(plait.Error, match="has been left"):
        plait.prepare(desc, comm)


def test_sum_tree_says_whose_bits_a_sum_has() -> None:
    f32 = plait.Dtype.f32
    desc = plait.OpDesc(plait.Operator.matmul_all_reduce, m=2, n=4, k=2048, x=f32)
    assert plait.sum_tree(desc, 2)
    assert plait.sum_tree(desc, 2).refusal is None
    for world, wire in ((3, f32), (2, plait.Dtype.bf16)):
        tree = plait.sum_tree(desc, world, wire)
        assert not tree
        assert tree.refusal is not None
        assert tree.refusal in repr(tree)

    def body(comm: plait.Communicator) -> None:
        assert plait.prepare(desc, comm).sum_tree()
        uneven = plait.OpDesc(desc.op, m=2, n=4, k=1024 + comm.rank, x=f32)
        assert not plait.prepare(uneven, comm).sum_tree()

    plait.run_in_threads(2, body)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_arrays_without_elements(operator: Callable[..., None]) -> None:
    """NumPy exports strides of 0 for them."""
    few = operands(x=np.ones((0, 6), np.float32), out=np.ones((0, 4), np.float32))
    narrow = operands(
        weight=plait.WeightView(np.ones((0, 6), np.float32), OUT_IN),
        out=np.ones((2, 0), np.float32),
    )
    with plait.Communicator.connect() as comm:
        operator(**few, comm=comm)
        operator(**narrow, comm=comm)


def test_a_quantised_weight() -> None:
    scheme = plait.QuantScheme("s8")
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    by = plait.PackedWeight(plait.quantize(w, layout=OUT_IN, scheme=scheme))
    out = np.empty((2, 4), np.float32)
    with plait.Communicator.connect() as comm:
        plait.matmul_all_reduce(np.ones((2, 6), np.float32), by, out, comm)
    # Half a step of a scale for each of six values.
    assert np.abs(out - w.sum(1)).max() <= 6 * 23 / 127 / 2 * (1 + 1e-5)


def test_bf16_of_torch() -> None:
    x, w = torch.ones(2, 6, dtype=torch.bfloat16), torch.ones(4, 6, dtype=torch.bfloat16)
    out = torch.empty(2, 4, dtype=torch.bfloat16)
    with plait.Communicator.connect() as comm:
        plait.matmul_all_reduce(x, plait.WeightView(w, OUT_IN), out, comm)
    assert bool((out == 6).all())
