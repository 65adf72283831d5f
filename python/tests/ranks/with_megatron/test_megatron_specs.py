"""The layers as classes that a spec names: served whether enable() was called or not."""

from typing import Any

import pytest
import torch
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.tensor_parallel import layers
from test_megatron_gpt import example, train  # noqa: F401  # a fixture
from test_megatron_layers import (
    BOUND,
    FUSION,
    INPUTS,
    OUTPUTS,
    SEQUENCE,
    Case,
    agree,
    config_of,
    difference,
    main_grad,
    make,
    run,
)

import plait
import plait.megatron
from plait.megatron import fusion

CASES = [
    case
    for kind in ("column", "row")
    for case in (
        Case("plain", kind),
        Case("sequence parallel", kind, SEQUENCE),
        Case("skip_bias_add", kind, layer={"skip_bias_add": True}),
        Case("main_grad", kind, FUSION, prepare=main_grad(torch.float32)),
    )
] + [Case("gather_output", layer={"gather_output": True})]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer(example: Any, case: Case) -> None:  # noqa: F811
    with fusion.provided():  # for Megatron's own layer
        expected = run(case, make(case, torch.float32), torch.float32)
    layer = make(case, torch.float32, plait.megatron)
    before = plait.megatron.report().served
    found = run(case, layer, torch.float32)
    served = plait.megatron.report().served - before
    agree(difference(expected, found, BOUND) or (None if served == 1 else f"{served} were served"))


def test_a_model(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    expected = train(example, False, {})
    provider = plait.megatron.SpecProvider()
    spec = gpt_layer_specs.get_gpt_layer_local_spec()
    attention = spec.submodules.self_attention.submodules
    attention.linear_qkv = provider.column_parallel_linear()
    attention.linear_proj = provider.row_parallel_linear()
    spec.submodules.mlp = gpt_layer_specs.get_mlp_module_spec_for_backend(backend=provider)
    monkeypatch.setattr(example, "get_gpt_layer_local_spec", lambda: spec)
    before = plait.megatron.report().served
    found = train(example, False, {})
    # Five steps of two column and two row layers; the output layer is Megatron's.
    served = plait.megatron.report().served - before
    off = max(abs(a - b) / a for a, b in zip(expected, found, strict=True))
    ok = served == 20 and off < 1e-5
    agree(None if ok else f"{served} calls were served; {expected}, with plait {found}")


def test_an_unknown_version_is_refused(
    example: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forward(self: Any, input_: Any, scale: Any) -> None: ...

    monkeypatch.setattr(layers.RowParallelLinear, "forward", forward)
    with pytest.raises(plait.Error, match=r"unknown: RowParallelLinear\.forward takes"):
        make(Case("unknown"), torch.float32, plait.megatron)


def test_fusion_is_provided_for_these_classes_alone(example: Any) -> None:  # noqa: F811
    case = Case("fused", config=FUSION)
    assert make(case, torch.float32, plait.megatron).gradient_accumulation_fusion
    with pytest.raises(RuntimeError, match="APEX"):
        layers.ColumnParallelLinear(
            INPUTS,
            OUTPUTS,
            config=config_of(case, torch.float32),
            init_method=torch.nn.init.zeros_,
        )
