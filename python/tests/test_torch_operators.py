"""Operators that read tensors by the functions of torch's type, and the way round without them."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

import plait
import plait.torch as pt
from plait import _native
from plait.torch import tensors
from plait.torch.context import Context, context_of
from plait.torch.how import How, context_for

OPTIONS = pt.Options(schedule="serial")


def test_a_report_of_one_rank_says_that_there_was_nothing_to_hide() -> None:
    pt.forget_report()
    for _ in range(5):  # the second and the fourth call are traced
        pt.matmul_all_reduce(torch.ones(8, 8), torch.ones(8, 8), options=pt.Options("fused"))
    (row,) = pt.report().rows
    assert row.hidden is None
    assert row.reason == "as options or settings say; there was nothing to hide"


def test_an_automatic_wire_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_WIRE", "bf16")
    assert pt.Options().resolved().wire is plait.Dtype.bf16
    options = pt.Options("fused", wire="auto")
    assert options.resolved().wire is None
    x = torch.ones(8, 8)
    assert pt.matmul_all_reduce(x, x, options=options).tolist() == (x @ x).tolist()
    how = {"schedule": "fused", "wire": "auto"}
    assert torch.ops.plait.matmul_all_reduce(x, x, None, "", **how).tolist() == (x @ x).tolist()


class Older(torch.Tensor):
    """Stands for torch's type in a torch whose type has no table of functions."""

    __dlpack_c_exchange_api__ = None


def reader(kind: type = torch.Tensor) -> _native._TorchTensors:
    return _native._TorchTensors(kind, torch.nn.Parameter, torch.is_grad_enabled)


def contexts() -> tuple[Context, Context]:
    """Return those of calls of plait.torch and of torch.ops."""
    return context_of(None, OPTIONS, "test"), context_for(How("", "serial"), "test")


def without_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "TORCH", reader(Older))
    for context in contexts():
        monkeypatch.setattr(context, "operators", context._operators())


def operands(dtype: torch.dtype = torch.float32) -> dict[str, tuple[Any, Any, Any]]:
    generator = torch.Generator().manual_seed(5)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    x, w, bias = values(4, 6), values(5, 6), values(5)
    return {
        "plain": (x, w, None),
        "bias": (x, w, bias),
        "parameter": (x, torch.nn.Parameter(w), bias),
        "gradients": (x.clone().requires_grad_(), w.clone().requires_grad_(), bias),
        "rows apart": (values(4, 9)[:, 2:8], values(5, 8)[:, :6], bias),
        "columns": (values(6, 4).t(), values(6, 5).t(), bias),
        "one row": (values(1, 6), w, bias),
        "no rows": (values(0, 6), w, bias),
        "shared rows": (values(1, 6).expand(4, 6), w, bias),
        "three dimensions": (values(2, 3, 6), w, bias),
        "one dimension": (values(6), w, bias),
        "negated": (torch._neg_view(x), torch._neg_view(w), torch._neg_view(bias)),
        "two dtypes": (x, w.to(torch.float16), bias),
        "bias apart": (x, w, values(10)[::2]),
    }


def functional(x: Any, w: Any, bias: Any) -> Any:
    return pt.matmul_all_reduce(x, w, bias, options=OPTIONS)


def by_name(x: Any, weight: Any, bias: Any) -> Any:
    return torch.ops.plait.matmul_all_reduce(x, weight, bias, "", "serial")


def outcome(call: Callable[..., Any], *operands: Any) -> Any:
    """Return the values and the gradients, or what was raised."""
    leaves = [one for one in operands if isinstance(one, torch.Tensor) and one.requires_grad]
    try:
        out = call(*operands)
    except (plait.Error, RuntimeError) as error:
        return type(error), str(error)
    assert out.untyped_storage().resizable()  # as torch's own results are
    return out, torch.autograd.grad(out.sum(), leaves) if leaves else ()


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and torch.equal(found, expected)
    if isinstance(expected, tuple) and expected and not isinstance(expected[0], type):
        return all(map(same, found, expected))
    return bool(found == expected)


@pytest.mark.parametrize("call", [functional, by_name])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", operands())
def test_both_ways_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, case: str, dtype: torch.dtype, call: Callable[..., Any]
) -> None:
    given = operands(dtype)[case]
    contexts()
    first = outcome(call, *given)
    without_table(monkeypatch)
    assert same(first, outcome(call, *given))


class Wrapped(torch.Tensor):
    """A stand-in for DTensor: a tensor whose elements are elsewhere."""


REFUSED = {
    "meta": torch.ones(4, 6, device="meta"),
    "sparse": torch.ones(4, 6).to_sparse(),
    "subclass": torch.ones(4, 6).as_subclass(Wrapped),
    "float64": torch.ones(4, 6, dtype=torch.float64),
    "complex": torch.ones(4, 6, dtype=torch.complex64).conj(),
    "int8": torch.ones(4, 6, dtype=torch.int8),
    "other k": torch.ones(4, 7),
    "three dimensions": torch.ones(2, 2, 6),
    "nested": torch.nested.nested_tensor([torch.ones(4, 6)]),
    "no tensor": "a word",
}


@pytest.mark.parametrize("call", [functional, by_name])
@pytest.mark.parametrize("name", ["x", "weight", "bias"])
@pytest.mark.parametrize("case", REFUSED)
def test_both_ways_refuse_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, case: str, name: str, call: Callable[..., Any]
) -> None:
    given = {"x": torch.ones(4, 6), "weight": torch.ones(5, 6), "bias": torch.ones(5)}
    given[name] = REFUSED[case]  # type: ignore[assignment]
    contexts()
    first = outcome(call, *given.values())
    if case == "nested" and call is functional:
        sentence = (
            f"matmul_all_reduce: {name} is nested; plait takes tensors whose rows are of one length"
        )
        assert first == (plait.Error, sentence)
    without_table(monkeypatch)
    assert same(first, outcome(call, *given.values()))


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
@pytest.mark.parametrize("others", ["cpu", "meta"])
def test_an_operand_without_values_beside_one_with_values(name: str, others: str) -> None:
    """Torch calls what stands for the operator in traces, whose results have no values either."""
    given = {"x": torch.ones(4, 6), "weight": torch.ones(5, 6), "bias": torch.ones(5)}
    given = {key: one.to("meta" if key == name else others) for key, one in given.items()}
    if others == "meta":
        assert by_name(**given).shape == (4, 5)
        return
    expected = f"^matmul_all_reduce: {name} is on meta; plait computes on cpu"
    with pytest.raises((plait.Error, RuntimeError), match=expected):
        by_name(**given)


FAST = {"plain", "bias", "parameter", "rows apart", "one row"}


def test_what_is_read_at_once() -> None:
    operator = contexts()[0].operators["matmul_all_reduce"]
    assert tensors.TORCH.has_table
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = {
            case
            for case, given in operands(dtype).items()
            if isinstance(operator.run(*given, False, -1), torch.Tensor)
        }
        two = {"two dtypes"} if dtype is torch.float16 else set()
        assert found == FAST | {"gradients"} | two
    x, w, _ = operands()["gradients"]
    assert operator.call(x, w, None, False, -1) is NotImplemented
    with torch.no_grad():
        assert isinstance(operator.call(x, w, None, False, -1), torch.Tensor)
    lazy = torch._to_functional_tensor(torch.ones(4, 6))  # has no memory
    assert operator.run(lazy, torch.ones(5, 6), None, False, -1) is None


def test_which_tables_are_known() -> None:
    """Only those of DLPack 1; there may be an older one behind a newer one."""
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"

    def table(major: int, previous: int = 0, view: int = 1) -> ctypes.Array[ctypes.c_uint64]:
        return (ctypes.c_uint64 * 7)(major, previous, 0, 0, 0, view, 0)

    def is_known(of: ctypes.Array[ctypes.c_uint64]) -> bool:
        capsule = api.PyCapsule_New(ctypes.addressof(of), name, None)
        return reader(
            type("Kind", (torch.Tensor,), {"__dlpack_c_exchange_api__": capsule})
        ).has_table

    old = table(1)
    assert reader().has_table
    assert not reader(Older).has_table
    assert is_known(old)
    assert is_known(table(2, ctypes.addressof(old)))
    assert not is_known(table(2))
    assert not is_known(table(1, view=0))
