"""Arguments of layers and operators beside tensors: refused in one sentence if it is wrong."""

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ranks import agree
from torch import nn

import plait
import plait.torch as pt

WORLD = int(os.environ["WORLD_SIZE"])


def test_options_of_another_type_are_refused() -> None:
    options: Any = {"schedule": "serial"}
    calls: list[Callable[..., torch.Tensor]]
    calls = [pt.matmul_all_reduce, pt.column_parallel_linear, pt.row_parallel_linear]
    for call in calls:
        with pytest.raises(
            plait.Error, match=r"options is of type dict, not plait\.torch\.Options"
        ):
            call(torch.ones(2, 6), torch.ones(8, 6), options=options)


def test_more_rows_than_can_be_counted_are_refused() -> None:
    x, w = torch.ones(2, 2, 6), torch.ones(8, 6)
    with pytest.raises(plait.Error, match=r"rows is \d+; it must be below"):
        pt.all_gather_matmul(x, w, rows=WORLD << 61)
    with pytest.raises(plait.Error, match=r"rows is \d+; it must be below"):
        pt.column_parallel_linear(x, w, rows=WORLD << 61, sequence_parallel=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"settings": {}}, "settings is of type dict"),
        ({"wire": ["bf16"]}, r"wire is \['bf16'\]; it can be auto, f32, bf16, f16, s8"),
        ({"schedule": ["serial"]}, r"schedule is \['serial'\]; it can be auto"),
        ({"parts": 4}, "parts is 4, and only schedule='pipelined' has parts"),
        ({"schedule": "pipelined", "parts": "4"}, "parts is '4', not a whole number"),
        ({"schedule": "pipelined", "parts": True}, "parts is True, not a whole number"),
        ({"fixed_weights": "no"}, "fixed_weights is 'no'; it can be True or False"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(plait.Error, match=rf"plait\.torch\.Options: {sentence}"):
        pt.Options(**options)


def test_options_have_as_many_parts_as_a_plan() -> None:
    for parts in (1, 64):
        assert pt.Options(schedule="pipelined", parts=parts).resolved().plan is not None
    for parts in (0, 65):
        with pytest.raises(plait.Error) as of_plan:
            plait.Plan(f"pipelined parts={parts}")
        with pytest.raises(plait.Error) as of_options:
            pt.Options(schedule="pipelined", parts=parts)
        assert str(of_options.value).split(": ")[1] == str(of_plan.value).split(": ")[1]


def test_rows_that_are_no_number_are_refused() -> None:
    x, w, rows = torch.ones(1, 6), torch.ones(8, 6), True
    for call in (pt.all_gather_matmul, pt.matmul_all_gather, pt.column_parallel_linear):
        with pytest.raises(plait.Error, match="rows is True, not a whole number"):
            call(x, w, rows=rows)


@pytest.mark.parametrize(
    ("plan", "given", "sentence"),
    [
        (["0"], {}, "plan is of type list; it can be 'auto' or a mapping"),
        ({0: "colwise"}, {}, "plan has the key 0; its keys are names of modules"),
        ({"0": 3}, {}, "there is no style 3"),
        ({"0": "colwise"}, {"options": {}}, "options is of type dict, not plait.torch.Options"),
        ({"0": "colwise"}, {"weight": 8}, "weight is 8; it can be text such as 's8'"),
    ],
)
def test_parallelize_refuses(plan: Any, given: dict[str, Any], sentence: str) -> None:
    model = nn.Sequential(nn.Linear(6, 8))
    with pytest.raises(plait.Error, match=f"parallelize: {sentence}"):
        pt.parallelize(model, plan, **given)
    assert type(model[0]) is nn.Linear


def test_layers_refuse_options_of_another_type() -> None:
    options: Any = {}
    for kind in (pt.ColumnParallelLinear, pt.RowParallelLinear):
        with pytest.raises(plait.Error, match=f"{kind.__name__}.from_linear: options is"):
            kind.from_linear(nn.Linear(6, 8), options=options)


@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_layers_refuse_dtypes_that_no_product_takes(kind: Any) -> None:
    linear = nn.Linear(6 * WORLD, 8 * WORLD).double()
    with pytest.raises(
        plait.Error, match=rf"{kind.__name__}\.from_linear: weight is torch\.float64"
    ):
        kind.from_linear(linear)
    by_torch = kind.from_linear(linear, options=pt.Options(engine="c10d"))
    x = torch.ones(2, by_torch.in_features, dtype=torch.float64)
    agree(by_torch(x).dtype is torch.float64, "torch's products take float64")


@pytest.mark.parametrize("scheme", [8, None, "s9"])
def test_what_is_no_scheme_is_refused(scheme: Any) -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8))
    sentence = "is no scheme" if scheme == "s9" else f"scheme is {scheme}; it can be text such as"
    with pytest.raises(plait.Error, match=sentence):
        pt.quantize(torch.ones(8, 6), scheme)
    if scheme is not None:  # which leaves a layer's weight as it is
        with pytest.raises(plait.Error, match=sentence):
            layer.quantize(scheme)


def test_what_can_be_quantised() -> None:
    linear = nn.Linear(6, 8).double()
    model, plan, c10d = nn.Sequential(linear), {"0": "colwise"}, pt.Options(engine="c10d")
    for call in (
        lambda: pt.ColumnParallelLinear.from_linear(linear, options=c10d).quantize("s8"),
        lambda: pt.quantize(linear.weight, "s8"),
        lambda: pt.parallelize(model, plan, weight="s8"),
    ):
        with pytest.raises(plait.Error, match=r"weight is torch\.float64; products take"):
            call()
    negated = torch.complex(torch.ones(8, 6), torch.ones(8, 6)).conj().imag
    assert bool((pt.quantize(negated, "s8").values == -127).all())


def test_layers_and_options_are_pickled() -> None:
    options = pt.Options(engine="c10d", schedule="pipelined", parts=2)
    assert options._c10d_parts(2) == 2  # which keeps a plan
    assert pickle.loads(pickle.dumps(options)) == options
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8), options=options)
    loaded = pickle.loads(pickle.dumps(layer))
    agree(torch.equal(loaded(torch.ones(2, 6)), layer(torch.ones(2, 6))), "another layer")


def test_what_cannot_be_pickled_says_what_to_do() -> None:
    with_settings = pt.Options(settings=plait.parse_settings("plan = 'serial'"))
    layer: Any = pt.RowParallelLinear.from_linear(nn.Linear(6, 8), options=with_settings)
    for one in (with_settings, layer):
        with pytest.raises(plait.Error, match="options with settings can't be pickled"):
            pickle.dumps(one)
        copy.copy(one)
        copy.deepcopy(one)
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8))
    layer.quantize("s8")
    with pytest.raises(plait.Error, match=r"ColumnParallelLinear: .* quantise after loading"):
        pickle.dumps(layer)
    x = torch.ones(2, 6)
    agree(torch.equal(copy.copy(layer)(x), layer(x)), "a copy")
