"""parallelize() by the plan that a model of Hugging Face brings, which is its default."""

import copy
from typing import Any

import pytest
import torch
from ranks import agree
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import plait.torch as pt


@pytest.mark.parametrize("weight", [None, "s8:group=16"])
def test_auto(weight: str | None) -> None:
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=128,
    )
    model: Any = LlamaForCausalLM(config).eval()
    tokens = torch.arange(10).view(1, 10)
    shared: Any = pt.parallelize(copy.deepcopy(model), weight=weight)
    layer = shared.model.layers[1]
    for module, kind in (
        (layer.self_attn.q_proj, pt.ColumnParallelLinear),
        (layer.self_attn.o_proj, pt.RowParallelLinear),
        (layer.mlp.up_proj, pt.ColumnParallelLinear),
        (layer.mlp.down_proj, pt.RowParallelLinear),
    ):
        assert isinstance(module, kind)
    assert not any(type(one) is nn.Linear for one in shared.modules())
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(tokens).logits
        off = (shared(tokens).logits.double() - exact).abs().max()
        torchs = (model(tokens).logits.double() - exact).abs().max()
    if weight is None:
        agree(bool(off <= 8 * torchs), f"{off}, where torch's own is off by {torchs}")
    else:
        agree(bool(off <= exact.abs().max() / 10), f"{off} of {exact.abs().max()}")
