"""Calls that plait leaves to Megatron for what they are given: each with one sentence."""

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import layers
from test_megatron_layers import OUTPUTS, Case, agree, input_of, make

import plait
import plait.megatron


@pytest.fixture(scope="module", autouse=True)
def groups() -> Iterator[None]:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    yield
    plait.megatron.disable()
    parallel_state.destroy_model_parallel()


def in_f64(layer: Any, x: torch.Tensor) -> Any:
    return layer.double()(x.double())[0]


def under_autocast(layer: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x)[0]


def with_four_dimensions(layer: Any, x: torch.Tensor) -> Any:
    return layer(x[None])[0]


def on_meta(layer: Any, x: torch.Tensor) -> Any:
    return layer.to("meta")(x.to("meta"))[0]


def with_an_input_of_bf16(layer: Any, x: torch.Tensor) -> Any:
    with pytest.raises(RuntimeError, match="dtype"):
        layer(x.bfloat16())


def with_a_share_of_the_weight(layer: Any, x: torch.Tensor) -> Any:
    """Megatron leaves each rank some rows of its weight, and gathers them in every call.

    It needs CUDA for that: here are the rows alone.
    """
    layer.gtp_remat_size = 2
    layer.register_parameter("bias", None)
    if layer.weight.shape[0] in (OUTPUTS, OUTPUTS // dist.get_world_size()):
        rows = layer.weight.shape[0] // layer.gtp_remat_size
        layer.weight = torch.nn.Parameter(layer.weight.detach()[:rows].clone())
    known = inspect.signature(layers.linear_with_frozen_weight).parameters
    if "gtp_remat_size" not in known:  # an older version takes the rows as they are
        return layer(x)[0]
    with pytest.raises(AttributeError):  # its own code asks the weight for the other rows
        layer(x)


def with_a_weight_of_fewer_rows(layer: Any, x: torch.Tensor) -> Any:
    layer.register_parameter("bias", None)
    rows = OUTPUTS // dist.get_world_size() - 1
    layer.weight = torch.nn.Parameter(layer.weight.detach()[:rows].clone())
    return layer(x)[0]


def with_a_product_of_its_own(layer: Any, x: torch.Tensor) -> Any:
    """Replace a layer's product as a quantiser does, under its name."""
    theirs = layer._forward_impl
    layer._forward_impl = functools.wraps(theirs)(lambda *args, **named: 2 * theirs(*args, **named))
    return layer(x)[0]


def of_a_class_with_its_own_product(layer: Any, x: torch.Tensor) -> Any:
    def product(self: Any, *args: Any, **named: Any) -> Any:
        return 2 * owner._forward_impl(self, *args, **named)

    owner: Any = layers.ColumnParallelLinear
    if isinstance(layer, layers.RowParallelLinear):
        owner = layers.RowParallelLinear
    layer.__class__ = type(owner.__name__, (owner,), {"_forward_impl": product})
    return layer(x)[0]


def with_a_bias_of_bf16(layer: Any, x: torch.Tensor) -> Any:
    layer.bias.data = layer.bias.data.bfloat16()
    with contextlib.suppress(RuntimeError):  # of a column layer, torch refuses it
        return layer(x)[0]


LEFT: dict[Callable[[Any, torch.Tensor], Any], str] = {
    in_f64: "its input is torch.float64",
    under_autocast: "autocast is on",
    with_four_dimensions: "its input has 4 dimensions, not 2 or 3",
    on_meta: "its input is on meta, and plait computes on CPUs and NVIDIA GPUs",
    with_an_input_of_bf16: "its input is torch.bfloat16, and its weight is torch.float32",
    with_a_weight_of_fewer_rows: "its weight is [{fewer}, 96], not [{rows}, 96]",
    with_a_share_of_the_weight: "gtp_remat_size gathers the weight in parts",
    with_a_product_of_its_own: "its _forward_impl is not Megatron's own",
    of_a_class_with_its_own_product: "its _forward_impl is not Megatron's own",
    with_a_bias_of_bf16: "its bias is torch.bfloat16, and its weight is torch.float32",
}


@pytest.mark.parametrize(
    ("kind", "call"),
    # gloo sums up no tensors of the meta device, as Megatron's own row layer would; and a row layer
    # is what the weight says that it has.
    [
        (kind, call)
        for kind in ("column", "row")
        for call in LEFT
        if kind == "column" or call not in (on_meta, with_a_weight_of_fewer_rows)
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_calls_that_are_left(
    kind: str,
    call: Callable[[Any, torch.Tensor], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = OUTPUTS // dist.get_world_size()
    case, sentence = Case("left", kind), LEFT[call].format(fewer=rows - 1, rows=rows)
    expected = call(make(case, torch.float32), input_of(case, torch.float32))
    layer, name = make(case, torch.float32), case.kind.capitalize() + "ParallelLinear"
    with caplog.at_level(logging.WARNING), plait.megatron.enabled():
        found = call(layer, input_of(case, torch.float32))
        call(layer, input_of(case, torch.float32))
        report = plait.megatron.report()
    verdict = None
    if [(row.layer, row.refusal) for row in report.rows] != [(name, sentence)]:
        verdict = f"it should be left to Megatron ({sentence}): {report}"
    elif expected is not None and found.device.type != "meta" and not torch.equal(expected, found):
        verdict = "Megatron's own code makes other values"
    said = [one.getMessage() for one in caplog.records if one.name == "plait.megatron"]
    if said != [f"{name} is left to Megatron: {sentence}"][: 1 if dist.get_rank() == 0 else 0]:
        verdict = f"it should be said once: {said}"
    agree(verdict)


def test_whole_inputs_are_not_shared_by_rows() -> None:
    """Megatron asserts that the two settings, which may change at run time, aren't both on."""
    layer = make(Case("whole", "row", layer={"input_is_parallel": False}), torch.float32)
    layer.sequence_parallel = True
    x = input_of(Case("whole", "column"), torch.float32)
    with plait.megatron.enabled():
        with pytest.raises(AssertionError):
            layer(x)
        rows = plait.megatron.report().rows
    sentence = "sequence_parallel is on, and input_is_parallel is off"
    agree(None if [row.refusal for row in rows] == [sentence] else str(rows))


@pytest.mark.parametrize("kind", ["column", "row"])
def test_unequal_shares_of_tokens_name_megatrons_rule(kind: str) -> None:
    """63 tokens on two ranks: Megatron's own code would wait, or refuse them too."""
    world = dist.get_world_size()
    layer = make(Case("odd", kind, {"sequence_parallel": True}), torch.float32)
    rows = 32 - (dist.get_rank() == world - 1) if kind == "column" else 32 * world - 1
    said = ""
    with plait.megatron.enabled():
        try:
            layer(torch.ones(rows, 1, layer.weight.shape[1]))
        except plait.Error as error:
            said = str(error)
    rule = f"tokens are shared equally: their number must be a multiple of {world}"
    agree(None if rule in said else f"it said: {said}")
