"""Changes while a program runs: of a layer's settings, and of whether plait is enabled."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.extensions import transformer_engine
from megatron.core.tensor_parallel import layers
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
    input_of,
    main_grad,
    make,
    run,
)

import plait.megatron
from plait.megatron import other_layers


@pytest.fixture(scope="module", autouse=True)
def groups() -> Iterator[None]:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    yield
    plait.megatron.disable()
    parallel_state.destroy_model_parallel()


@pytest.mark.parametrize("kind", ["column", "row"])
def test_sequence_parallel_is_read_at_every_call(kind: str) -> None:
    """Megatron turns it off for a call and on again, with the layer of the same weight."""
    shared, whole = Case("shared", kind, SEQUENCE), Case("whole", kind)
    layer = make(shared, torch.float32)

    def in_turns() -> list[dict[str, Any]]:
        found = []
        for case in (shared, whole, shared):
            layer.sequence_parallel = case is shared
            found.append(run(case, layer, torch.float32))
        return found

    expected = in_turns()
    with plait.megatron.enabled():
        found = in_turns()
        rows = plait.megatron.report().rows
    verdict = None if [row.refusal for row in rows] == [None] else f"it was left: {rows}"
    for theirs, ours in zip(expected, found, strict=True):
        verdict = verdict or difference(theirs, ours, BOUND)
    agree(verdict)


@pytest.mark.parametrize("kind", ["column", "row"])
def test_fused_layers_outlive_plait(kind: str) -> None:
    """Without APEX they are made while plait is enabled, and train on after disable()."""
    case = Case("fused", kind, FUSION, prepare=main_grad(torch.float32))
    layer = make(case, torch.float32)
    with plait.megatron.enabled():
        expected = run(case, layer, torch.float32)
    agree(difference(expected, run(case, layer, torch.float32), BOUND))
    with pytest.raises(RuntimeError, match="APEX"):  # as it was before enable()
        layers.ColumnParallelLinear(
            INPUTS,
            OUTPUTS,
            config=config_of(case, torch.float32),
            init_method=torch.nn.init.zeros_,
        )


@pytest.mark.parametrize("setting", ["tp_comm_overlap", "fp8", "fp4"])
def test_settings_of_other_layers_are_said_once(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case("setting")
    layer = make(case, torch.float32)
    setattr(layer.config, setting, "hybrid")
    with caplog.at_level(logging.WARNING), plait.megatron.enabled():
        for _ in range(2):
            layer(input_of(case, torch.float32))
        served = plait.megatron.report().served
    said = [one.getMessage() for one in caplog.records if one.name == "plait.megatron"]
    expected = [
        f"{setting} has no effect on ColumnParallelLinear, with plait or without: it is a setting "
        "of layers of Transformer Engine"
    ]
    ok = said == expected * (dist.get_rank() == 0) and served == 2
    agree(None if ok else f"{served} calls were served; said: {said}")


class Engine(torch.nn.Linear):
    """A layer of another package."""

    tp_size = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


class Column(Engine):
    """It has no forward of its own, as the column layer of Transformer Engine."""


def test_layers_of_another_engine_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Transformer Engine needs CUDA: these layers are watched in the place of its own."""
    original = Engine.forward
    plait.megatron.enable()
    end = other_layers.watch([Engine], plait.megatron.swap.service().leave)
    x = torch.ones(2, 4)
    alone = Column(4, 4)
    alone.tp_size = 1
    with caplog.at_level(logging.WARNING):
        layer = Column(4, 4)
        expected = original(layer, x)
        assert torch.equal(layer(x), expected)
        assert torch.equal(layer(x), expected)
        alone(x)
    rows = [(row.layer, row.calls, row.refusal) for row in plait.megatron.report().rows]
    assert rows == [("Column", 2, other_layers.REFUSAL)]
    said = [one.getMessage() for one in caplog.records if one.name == "plait.megatron"]
    assert said == [f"Column is left to Megatron: {other_layers.REFUSAL}"]
    end()
    plait.megatron.disable()
    assert Engine.forward is original


def test_names_of_transformer_engine_are_megatrons() -> None:
    assert set(other_layers.NAMES) <= set(vars(transformer_engine))
    if not transformer_engine.HAVE_TE:
        assert other_layers.classes() == []
