"""Styles by themselves, on one linear layer: served with the values of transformers' own."""

import logging
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import MixtralConfig
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

import plait
import plait.torch as pt
import plait.transformers
from plait.transformers import styles

INPUTS, OUTPUTS, ROWS = 24, 40, 5
# Sums of 24 products of f32 in another order.
BOUND = {torch.float32: 1e-5, torch.bfloat16: 2.0**-6}


def run(style: str, how: str) -> tuple[torch.Tensor, ...]:
    """Call a layer of a style, and return all that it makes."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(4)
    module: Any = torch.nn.Linear(INPUTS, OUTPUTS)
    module.config = MixtralConfig(qk_rope_head_dim=8)  # as a model of latent attention has it
    x = torch.randn(2, ROWS, INPUTS)
    if style == "rowwise":
        x = x.chunk(dist.get_world_size(), -1)[dist.get_rank()].contiguous()
    if how == "bf16":
        module, x = module.bfloat16(), x.bfloat16()
    x.requires_grad_()
    ALL_PARALLEL_STYLES[style].shard_param(module, "weight", mesh)
    ALL_PARALLEL_STYLES[style].shard_param(module, "bias", mesh)
    ALL_PARALLEL_STYLES[style].install_forward(module, mesh)
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        out = module(x)
    generator = torch.Generator().manual_seed(5)
    out.backward(torch.randn(out.shape, generator=generator).to(out.dtype))
    grads = [x.grad, module.weight.grad, module.bias.grad]
    local = [one.to_local() if isinstance(one, DTensor) else one for one in grads]
    return (out.detach(), *local)


@pytest.mark.parametrize("how", ["f32", "bf16", "autocast"])
@pytest.mark.parametrize(
    "style",
    [
        *("colwise", "colwise_gather_output", "colwise_rep"),
        *("rowwise", "rowwise_split_input", "rowwise_rep"),
    ],
)
def test_a_style_is_served(style: str, how: str) -> None:
    expected = run(style, how)
    with plait.transformers.enabled():
        found = run(style, how)
        report = plait.transformers.report()
    agree(report.served == 1 and report.refusals == (), str(report))
    for name, theirs, ours in zip(("out", "x", "weight", "bias"), expected, found, strict=True):
        alike = (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)
        agree(alike, f"{name}: {theirs.shape} {theirs.dtype}, {ours.shape} {ours.dtype}")
        bound = BOUND[torch.float32 if how == "f32" else torch.bfloat16]
        off = (theirs.double() - ours.double()).abs().max().item()
        agree(off <= bound * max(1.0, theirs.abs().max().item()), f"{name} differs by {off}")


@pytest.mark.parametrize("style", ["colwise_gather_output", "rowwise_split_input"])
def test_shares_are_those_of_dtensors(style: str) -> None:
    """On four ranks DTensors have shares of 11, 11, 11 and 9, and plait's own layers 11 and 10."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(4)
    module: Any = torch.nn.Linear(42, 42)
    x = torch.randn(2, ROWS, 42)
    expected = module(x).detach()
    with plait.transformers.enabled(), torch.no_grad():
        ALL_PARALLEL_STYLES[style].shard_param(module, "weight", mesh)
        ALL_PARALLEL_STYLES[style].shard_param(module, "bias", mesh)
        ALL_PARALLEL_STYLES[style].install_forward(module, mesh)
        for rows in (x, x[0, 0], x[:, :0]):
            found = module(rows)
            wanted = expected if rows is x else expected[0, 0] if rows.dim() == 1 else x[:, :0]
            agree(found.shape == wanted.shape, f"{list(found.shape)}")
            agree(torch.allclose(found, wanted, atol=1e-5), f"rows of {list(rows.shape)}")


def local(parameter: Any) -> torch.Tensor:
    share: torch.Tensor = parameter.to_local()
    return share.detach()


@pytest.mark.parametrize("style", ["colwise", "rowwise"])
def test_calls_made_at_once_see_what_changed(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first call without gradients go to the native layer."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    module: Any = torch.nn.Linear(INPUTS, OUTPUTS)
    with plait.transformers.enabled():
        ALL_PARALLEL_STYLES[style].shard_param(module, "weight", mesh)
        ALL_PARALLEL_STYLES[style].shard_param(module, "bias", mesh)
        ALL_PARALLEL_STYLES[style].install_forward(module, mesh)
    function = pt.column_parallel_linear if style == "colwise" else pt.row_parallel_linear
    made: list[int] = []
    multiply = styles.Site.multiply

    def counting(*how: Any) -> torch.Tensor:
        made.append(1)
        return multiply(*how)

    monkeypatch.setattr(styles.Site, "multiply", counting)

    def check(what: str, others: int, dtype: torch.dtype = torch.float32) -> None:
        x = torch.randn(2, ROWS, local(module.weight).shape[1]).to(dtype)
        made.clear()
        with torch.no_grad():
            found, again = module(x), module(x)
            expected = function(x, local(module.weight), local(module.bias))
        agree(torch.equal(found, expected) and torch.equal(again, expected), f"{what}: other bits")
        agree(len(made) == others, f"{what}: {len(made)} of 2 calls were checked in Python")

    check("the first call", 1)
    local(module.weight).mul_(2)
    check("written to", 0)
    module.weight.data = module.weight.data * 3
    check("other data", 0)
    for name, parameter in dict(module.named_parameters()).items():
        setattr(module, name, torch.nn.Parameter(parameter.detach() + 1))
    check("other parameters", 0)
    called = []
    hook = module.register_forward_hook(lambda *_: called.append(1))
    check("a hook", 0)
    hook.remove()
    agree(len(called) == 2, f"the hook was called {len(called)} times")
    module.requires_grad_()
    x = torch.randn(ROWS, local(module.weight).shape[1])
    agree(module(x).requires_grad, "the result has no graph")
    check("after gradients", 0)
    compiled: Any = torch.compile(module, backend="eager")
    with torch.no_grad():
        agree(torch.equal(compiled(x), module(x)), "compiled: other bits")
        agree(torch.equal(compiled(x), module(x)), "compiled, once more: other bits")
    module.bfloat16()
    check("another dtype", 1, torch.bfloat16)
    module.bias = None
    x = x.bfloat16()
    with torch.no_grad():
        agree(torch.equal(module(x), function(x, local(module.weight))), "no bias: other bits")


def test_threads_decode_beside_one_another() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    modules: list[Any] = [torch.nn.Linear(INPUTS, OUTPUTS) for _ in range(2)]
    xs = [torch.randn(1, INPUTS) for _ in modules]
    with plait.transformers.enabled(), torch.no_grad():
        for module in modules:
            ALL_PARALLEL_STYLES["colwise"].shard_param(module, "weight", mesh)
            ALL_PARALLEL_STYLES["colwise"].shard_param(module, "bias", mesh)
            ALL_PARALLEL_STYLES["colwise"].install_forward(module, mesh)
        expected = [module(x) for module, x in zip(modules, xs, strict=True)]
        wrong: list[int] = []

        def decode(which: int) -> None:
            with torch.no_grad():  # which each thread has for itself
                for _ in range(200):
                    if not torch.equal(modules[which](xs[which]), expected[which]):
                        wrong.append(which)

        threads = [threading.Thread(target=decode, args=(which,)) for which in (0, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    agree(not wrong and not any(one.is_alive() for one in threads), f"wrong results of {wrong}")


def check_left(sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    report = plait.transformers.report()
    agree(report.modules == ((sentence, 1),) and report.served == 0, str(report))
    said = [one.getMessage() for one in caplog.records if one.name == "plait.transformers"]
    expected = [f"a module is left to transformers: {sentence}"] * (dist.get_rank() == 0)
    agree(said == expected, str(said))


def test_latent_attention_is_left(caplog: pytest.LogCaptureFixture) -> None:
    expected = run("mla_kv_a_proj", "f32")
    with caplog.at_level(logging.WARNING), plait.transformers.enabled():
        found = run("mla_kv_a_proj", "f32")
        check_left("Linear: the style mla_kv_a_proj is not served", caplog)
    agree(all(map(torch.equal, expected, found)), "values differ")


def test_experts_with_an_activation_of_their_own_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Transformers names the meshes, as for no other style."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    experts = MixtralExperts(MixtralConfig(hidden_size=8, intermediate_size=8, num_local_experts=4))
    experts.act_fn = torch.nn.GELU()
    with caplog.at_level(logging.WARNING), plait.transformers.enabled():
        style: Any = ALL_PARALLEL_STYLES["ep_dispatch_experts"]
        left = style.install_forward(experts, ep_mesh=mesh, tp_mesh=mesh)
        check_left("MixtralExperts: its activation is GELU, not SiLU", caplog)
    agree(left is experts and "forward" in vars(experts), "their forward is not installed")


class OtherStyle:
    """A style of a later version."""

    def install_forward(self, module: Any, mesh: Any, plan: Any) -> None: ...


@pytest.mark.parametrize(
    ("style", "sentence"),
    [
        (OtherStyle(), r"packed_rowwise takes \(module, mesh, plan\)"),
        (object(), "packed_rowwise has no install_forward"),
    ],
)
def test_an_unknown_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, style: object, sentence: str
) -> None:
    before = dict(ALL_PARALLEL_STYLES)
    with monkeypatch.context() as patched:
        patched.setitem(ALL_PARALLEL_STYLES, "packed_rowwise", style)
        with pytest.raises(plait.Error, match=sentence):
            plait.transformers.enable()
        assert ALL_PARALLEL_STYLES["colwise"] is before["colwise"]
    plait.transformers.enable()
    plait.transformers.disable()


def test_styles_of_the_program_are_put_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program may have styles of its own, and replace others while plait is enabled."""
    own: Any = type("Own", (type(ALL_PARALLEL_STYLES["colwise"]),), {})()
    later = ALL_PARALLEL_STYLES["replicated_with_grad_allreduce"]
    with monkeypatch.context() as patched:
        patched.setitem(ALL_PARALLEL_STYLES, "colwise", own)
        patched.setitem(ALL_PARALLEL_STYLES, "another", own)
        plait.transformers.enable()
        assert isinstance(ALL_PARALLEL_STYLES["colwise"], type(own))
        ALL_PARALLEL_STYLES["all_reduce"] = later
        ALL_PARALLEL_STYLES["made since"] = later
        plait.transformers.disable()
        assert ALL_PARALLEL_STYLES["colwise"] is own
        assert ALL_PARALLEL_STYLES["another"] is own
        assert ALL_PARALLEL_STYLES["all_reduce"] is later
    del ALL_PARALLEL_STYLES["all_reduce"], ALL_PARALLEL_STYLES["made since"]
    said = [one.getMessage() for one in caplog.records if one.name == "plait.transformers"]
    assert said == ["the style all_reduce was replaced since, and is left as it is"]
