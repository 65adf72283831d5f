"""The options that follow from settings, the environment and the command line."""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import shims
import torch
import torch.distributed as dist
from ranks import agree

shims.apply()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import plait  # noqa: E402
import plait.megatron  # noqa: E402
import plait.torch  # noqa: E402
from plait.megatron import __main__ as plait_main  # noqa: E402

INPUTS, ROWS = 96, 12


@pytest.fixture(scope="module", autouse=True)
def groups() -> Iterator[None]:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    yield
    parallel_state.destroy_model_parallel()


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("COC_PARALLEL_NUM", "USE_COC_FUSED_KERNEL", "PLAIT_PLAN", "PLAIT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    plait.torch.forget_report()
    yield
    plait.megatron.disable()


def config_of_a_sequence() -> TransformerConfig:
    return TransformerConfig(
        num_layers=1,
        hidden_size=INPUTS,
        num_attention_heads=4,
        tensor_model_parallel_size=dist.get_world_size(),
        sequence_parallel=True,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
    )


def step() -> torch.Tensor:
    """Run a column layer with sequence parallelism, made before or after enable(); return out."""
    world, config = dist.get_world_size(), config_of_a_sequence()
    torch.manual_seed(1)
    layer: Any = ColumnParallelLinear(
        INPUTS, 40 * world, config=config, init_method=torch.nn.init.normal_
    )
    out: torch.Tensor = layer(torch.ones(ROWS // world, 2, INPUTS, requires_grad=True))[0]
    out.sum().backward(retain_graph=True)
    return out


def plans() -> dict[str, str]:
    return {row.operator: row.plan for row in plait.torch.report().rows}


def enable(toml: str) -> None:
    plait.megatron.enable(settings=plait.parse_settings(toml))


def test_customized_coc() -> None:
    shape = f"[{2 * ROWS}, {INPUTS}, 40]"
    enable(f'coc_parallel_num = 1\n[coc_cfgs]\ncustomized_coc = {{"{shape}" = 3}}')
    step()
    agree(plans()["all_gather_matmul"] == "pipelined parts=3", str(plans()))


def test_customized_coc_of_a_backward() -> None:
    """A row layer's backward has a key of its own: rows, outputs, and this rank's inputs."""
    shape = f"[{2 * ROWS}, 40, {INPUTS}]"
    enable(f'coc_parallel_num = 1\n[coc_cfgs]\ncustomized_coc = {{"{shape}" = 3}}')
    world, config = dist.get_world_size(), config_of_a_sequence()
    layer: Any = RowParallelLinear(
        INPUTS * world,
        40,
        config=config,
        init_method=torch.nn.init.normal_,
        bias=True,
        input_is_parallel=True,
        skip_bias_add=False,
    )
    layer(torch.ones(ROWS, 2, INPUTS, requires_grad=True))[0].sum().backward()
    found = plans()
    ok = found["matmul_reduce_scatter"].startswith("serial")
    ok = ok and found["all_gather_matmul"] == "pipelined parts=3"
    agree(ok, str(found))


def test_coc_cfgs_of_a_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plait.toml"
    file.write_text("coc-fused-kernel = true\n[coc_cfgs]\nrecompute_all_gather = true\n")
    monkeypatch.setenv("PLAIT_CONFIG", str(file))
    agree(plait.megatron.enable_from_arguments(argparse.Namespace()), "the file asks for nothing")
    step()
    agree(plans()["all_gather_matmul"].startswith("fused"), str(plans()))


@pytest.mark.parametrize("column_backward", [False, True])
def test_coc_in_column_backward(column_backward: bool) -> None:
    value = str(column_backward).lower()
    enable(f"[coc_cfgs]\nenable_coc_in_column_backward = {value}\nrecompute_all_gather = true")
    step()
    agree(("matmul_reduce_scatter" in plans()) == column_backward, str(plans()))


@pytest.mark.parametrize("recompute", [False, True])
def test_recompute_all_gather(recompute: bool) -> None:
    enable(f"[coc_cfgs]\nrecompute_all_gather = {str(recompute).lower()}")
    node: Any = step().grad_fn
    while node.name() != "_LinearBackward":
        node = node.next_functions[0][0]
    held = 0 if node.call.state is None else node.call.state.held_bytes
    agree((held > 0) != recompute, f"{held} bytes of x are kept")


@pytest.mark.parametrize(
    ("variables", "plan"),
    [
        ({"COC_PARALLEL_NUM": "4"}, "pipelined parts=4"),
        ({"COC_PARALLEL_NUM": "1"}, "serial"),
        ({"USE_COC_FUSED_KERNEL": "1"}, "fused"),
        ({"USE_COC_FUSED_KERNEL": "1", "COC_PARALLEL_NUM": "4"}, "fused"),
        ({"PLAIT_PLAN": "serial", "COC_PARALLEL_NUM": "4"}, "serial"),
    ],
    ids=str,
)
def test_environment(variables: dict[str, str], plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plait.megatron.enable()
    step()
    agree(plans()["all_gather_matmul"].startswith(plan), str(plans()))


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ("--use-ascend-coc", "pipelined parts=7"),
        ("--use-ascend-coc --coc-parallel-num 4", "pipelined parts=4"),
        ("--coc-parallel-num 1", "serial"),
        ("--coc-fused-kernel", "fused"),
        ("--coc-fused-kernel --coc-parallel-num 4", "fused"),
        ("--use-plait --coc-mode 0", "serial"),
        ("--coc-mode 1 --coc-fused-kernel", "fused"),
    ],
)
def test_options_go_before_the_environment(
    line: str, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COC_PARALLEL_NUM", "7")
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    agree(plait.megatron.enable_from_arguments(parser.parse_args(line.split())), "asks for nothing")
    step()
    agree(plans()["all_gather_matmul"].startswith(plan), str(plans()))


SHAPE = f"[{2 * ROWS}, {INPUTS}, 40]"
CUSTOMIZED = f'[coc_cfgs]\ncustomized_coc = {{"{SHAPE}" = 3}}'


@pytest.mark.parametrize(
    ("file", "variables", "line", "plan"),
    [
        ("coc_parallel_num = 2", {}, "--use-ascend-coc", "pipelined parts=2"),
        ("coc_parallel_num = 2", {"COC_PARALLEL_NUM": "4"}, "", "pipelined parts=4"),
        ("coc_parallel_num = 2", {}, "--coc-parallel-num 5", "pipelined parts=5"),
        ("coc-fused-kernel = true", {"COC_PARALLEL_NUM": "4"}, "--coc-mode 0", "serial"),
        (CUSTOMIZED, {"COC_PARALLEL_NUM": "4"}, "--coc-parallel-num 5", "pipelined parts=3"),
        (CUSTOMIZED, {"USE_COC_FUSED_KERNEL": "1"}, "--coc-fused-kernel", "pipelined parts=3"),
    ],
)
def test_which_setting_counts(
    file: str,
    variables: dict[str, str],
    line: str,
    plan: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shape's own plan goes before options, they before the environment, and it before files."""
    (tmp_path / "plait.toml").write_text(file)
    for name, value in {"PLAIT_CONFIG": str(tmp_path / "plait.toml"), **variables}.items():
        monkeypatch.setenv(name, value)
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    agree(plait.megatron.enable_from_arguments(parser.parse_args(line.split())), "asks for nothing")
    step()
    agree(plans()["all_gather_matmul"].startswith(plan), str(plans()))


def test_nothing_is_asked_for() -> None:
    original = ColumnParallelLinear.forward
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    assert not plait.megatron.enable_from_arguments(parser.parse_args([]))
    assert ColumnParallelLinear.forward is original


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"use_ascend_mc2": True}, "--use-ascend-mc2 replaces"),
        ({"optimize_recomp_communication_level": 1}, "--optimize-recomp-communication-level"),
        ({"tp_comm_overlap": True}, "--tp-comm-overlap"),
        ({"tp_2d": True}, "--tp-2d"),
        ({"unaligned_linear": True}, "--unaligned-linear"),
        ({"coc_parallel_num": 65}, "65"),
        ({"coc_parallel_num": 0}, "0"),
    ],
    ids=str,
)
def test_what_is_refused(given: dict[str, Any], sentence: str) -> None:
    original = ColumnParallelLinear.forward
    with pytest.raises(plait.Error, match=sentence):
        plait.megatron.enable_from_arguments(argparse.Namespace(use_ascend_coc=True, **given))
    assert ColumnParallelLinear.forward is original


@pytest.mark.parametrize(
    "options",
    [
        ["--use-ascend-mc2"],
        ["--optimize-recomp-communication-level", "1"],
        ["--optimize-recomp-communication-level=2"],
        ["--tp-2d"],
        ["--unaligned-linear"],
        ["--tp-comm-overlap"],
    ],
    ids=" ".join,
)
def test_what_a_script_may_not_ask_for(
    options: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """`python -m plait.megatron SCRIPT OPTIONS` refuses it, and does not run the script."""
    script = tmp_path / "train.py"
    script.write_text("print('it runs')")
    status, said = start([script, *options], monkeypatch), capsys.readouterr()
    name = options[0].split("=")[0]
    refused = status == 2 and f"{name} replaces the communication" in said.err
    agree(refused and "it runs" not in said.out, said.err)


def start(line: list[Any], monkeypatch: pytest.MonkeyPatch) -> object:
    """Run `python -m plait.megatron LINE` in this process; return its exit status."""
    monkeypatch.setattr("sys.argv", ["plait.megatron", *map(str, line)])
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        plait_main.main()
    return end.value.code


PRINTS = "import sys\nprint(sys.argv[1:])\nsys.exit(3)\n"


def test_a_script_of_an_unknown_version_runs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def forward(self: Any, input_: Any, scale: Any) -> None: ...

    script = tmp_path / "train.py"
    script.write_text(PRINTS)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(ColumnParallelLinear, "forward", forward)
    status = start(["--coc-parallel-num", 2, script, "--lr", 1], monkeypatch)
    said = capsys.readouterr()
    assert (status, said.out) == (3, "['--lr', '1']\n")
    assert "this version of Megatron-Core is unknown" in caplog.text
    assert "this version of Megatron-Core is unknown" in said.err  # the report


@pytest.mark.parametrize(
    ("before", "behind", "printed", "status"),
    [
        ([], ["--help"], "['--help']", 3),
        ([], ["-h", "--coc-parallel-num", "2", "--lr", "1"], "['-h', '--lr', '1']", 3),
        (["--coc-fused-kernel"], ["x", "--use-plait"], "['x']", 3),
        (["--help"], ["--lr", "1"], "usage: torchrun -m plait.megatron SCRIPT", 0),
        (["--lr"], [], "", 2),
    ],
    ids=["help", "options", "around", "own help", "unknown"],
)
def test_whose_options_they_are(
    before: list[str],
    behind: list[str],
    printed: str,
    status: int,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PRINTS)
    assert start([*before, script, *behind], monkeypatch) == status
    assert capsys.readouterr().out.startswith(printed)


def test_a_level_of_nothing_is_no_rival() -> None:
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    line = ["--use-ascend-coc", "--optimize-recomp-communication-level", "0"]
    assert plait.megatron.enable_from_arguments(parser.parse_args(line))


def test_wrong_settings_are_refused_by_enable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COC_PARALLEL_NUM", "many")
    with pytest.raises(plait.Error, match="COC_PARALLEL_NUM"):
        plait.megatron.enable()
