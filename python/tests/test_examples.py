"""The programs that the documents show, in sizes that take seconds."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import Launcher, ended

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
PLAIT_RUN = [sys.executable, "-m", "plait", "run", "-n", "2", "--", sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# Ranks that begin as TORCHRUN's do, from one process that has imported what they need.
TOGETHER: list[str] = []
SMALL_GPT = ["--hidden", "64", "--layers", "1", "--tokens", "32", "--steps", "2"]

# How each is started, the package that it needs besides torch, and what it prints.
PROGRAMS: dict[str, tuple[list[str], list[str], str | None, str]] = {
    "all_reduce.py": (PLAIT_RUN, [], None, r"(?s)rank [01].*rank [01]"),
    "matmul_all_reduce.py": (PLAIT_RUN, [], None, r"(?s)(y\[2, 3\] = 750\.0.*){2}"),
    # Its ranks are threads.
    "gpu.py": ([sys.executable], [], None, r"(.*off from torch's f32 by .*\n){3}"),
    "torch_backend.py": (TORCHRUN, [], None, r"(?s)rank [01].*rank [01]"),
    # Two ranks need one addition, which rounds once over gloo too.
    "torch_sums.py": (
        TOGETHER,
        [],
        None,
        r"gloo +0\.0% are not .*: True\nplait +0\.0% are not .*: True\n",
    ),
    "torch_mlp.py": (TORCHRUN, [], None, r"matmul_all_reduce +256 +1024 +4096 f32 +f32 +1 "),
    "torch_report.py": (
        TOGETHER,
        [],
        None,
        r"matmul_all_reduce +256 +512 +2048 f32 +f32 +8 .* fused",
    ),
    "torch_engines.py": (TOGETHER, [], None, r"automatic: \d.*\nc10d, serial: \d.*\nc10d, pip"),
    # On one host no plan is tried; test_hosts.py has those that are.
    "torch_hosts.py": (TOGETHER, [], None, r"hosts 1, over shm(\n.*)+matmul_all_reduce +512 +1024"),
    "torch_profile.py": (TOGETHER, [], None, r"matmul_all_reduce +256 +512 +1024 f32 +1 "),
    "torch_dtensor.py": (TOGETHER, [], None, r"DTensors, .*(\n.*)+matmul_all_reduce +256 +512"),
    "torch_checkpoint.py": (TOGETHER, [], None, r"saved by 2: \[2048, 512\], with the sum"),
    "torch_compile.py": (TOGETHER, [], None, r"values: True(\n.*)+matmul_all_reduce +256 +512"),
    "torch_ulysses.py": (
        TOGETHER,
        [],
        None,
        r"(?s)(rank [01]: 45 of 90 positions, as one rank: True.*){2}",
    ),
    "torch_lora.py": (
        TOGETHER,
        [],
        "peft",
        r"a loss of (\d\.\d{2})\d* on 2 ranks, .* \1\d* on one",
    ),
    "megatron_layers.py": (
        TOGETHER,
        [],
        "megatron",
        r"ColumnParallelLinear: 1 call served by plait\n"
        r"RowParallelLinear: 1 call served by plait\noperator .*\n(.*\n)*matmul_all_reduce +256 ",
    ),
    "megatron_gpt.py": (
        TOGETHER,
        [*SMALL_GPT, "--sequence-parallel"],
        "megatron",
        # All losses agree in four digits, and every call was served.
        r"megatron +(\d\.\d{4})\d* (\d\.\d{4})\d*\nwith plait +\1\d* \2\d*\n"
        r"(.*\n)*ColumnParallelLinear: 6 calls served by plait\n"
        r"RowParallelLinear: 4 calls served by plait\n",
    ),
    "megatron_experts.py": (
        TOGETHER,
        ["--tokens", "32", "--steps", "3"],
        "megatron",
        # All losses agree in four digits.
        r"megatron +(\d\.\d{4})\d* (\d\.\d{4})\d* (\d\.\d{4})\d* .*\n"
        r"with plait +\1\d* \2\d* \3\d* .*\n8 experts of 128 x 96, 2 a row, f32, fused: 6 calls, ",
    ),
    "transformers_llama.py": (
        TOGETHER,
        [],
        "transformers",
        r"\[5, 6, 7(, \d+){16}\]\nlinear layers: 240 calls served by plait\n",
    ),
    "transformers_moe.py": (
        TOGETHER,
        [],
        "transformers",
        r"\[5, 6, 7(, \d+){16}\]\n(.*\n)*experts: 32 calls served by plait\n(.*\n)*16 experts of ",
    ),
    # On one host no plan is tried.
    "transformers_hosts.py": (
        TOGETHER,
        [],
        "transformers",
        r"transformers +first .*\nwith plait +first .*\nlinear layers: 90 calls served by plait\n",
    ),
    # It starts its ranks by itself. python/tests/with_vllm runs it with and without plait.
    "vllm_generate.py": ([sys.executable], [], "vllm", r"4 RowParallelLinear: \d+ calls served"),
}


# Programs that measure: how many turns they take, and how many are enough here.
TURNS = {
    "torch_hosts.py": ("range(10)", "range(2)"),
    "transformers_hosts.py": ("range(30)", "range(6)"),
}

# Programs that other tests run: python/tests/with_smollm2 has the weights.
ELSEWHERE = ["smollm2.py"]

# The first programs of the guides. The others start torch, Megatron or transformers for what
# tests of ranks show too.
SHORT = ["all_reduce.py", "gpu.py", "torch_backend.py", "torch_mlp.py"]


def examples() -> list[Any]:
    names = sorted({path.name for path in EXAMPLES.glob("*.py")} - {*ELSEWHERE})
    return [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", examples())
def test_runs(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    launcher, arguments, needed, said = PROGRAMS[name]
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    program = [str(EXAMPLES / name), *arguments]
    if name in TURNS:
        text = (EXAMPLES / name).read_text()
        assert TURNS[name][0] in text
        program[0] = str(tmp_path / name)
        Path(program[0]).write_text(text.replace(*TURNS[name]))
    if launcher is TOGETHER:
        ranks = request.getfixturevalue("together").start(2, *program, folder=str(tmp_path))
        assert ranks.codes == [0, 0], ranks.text
        assert re.search(said, ranks.text), ranks.text
        return
    done = ended(*launcher, *program, folder=tmp_path)
    if name == "gpu.py" and not torch.cuda.is_available():
        assert done.returncode == 77, done.stderr
        said = r"^there is no GPU that torch can use\n$"
    else:
        assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout), done.stdout


@pytest.mark.long
def test_a_checkpoint_is_loaded_by_fewer_ranks(tmp_path: Path, together: Launcher) -> None:
    program = str(EXAMPLES / "torch_checkpoint.py")
    saved, loaded = (together.start(ranks, program, folder=str(tmp_path)) for ranks in (2, 1))
    (said,) = re.findall(r"saved by 2(: .*)", saved.text)
    assert f"loaded by 1{said}\n" in loaded.text


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="needs megatron-core")
def test_megatron_gpt_over_a_link(tmp_path: Path, together: Launcher) -> None:
    link = ["--link", "2gbit,20us", "--schedule", "fused"]
    program = [str(EXAMPLES / "megatron_gpt.py"), *SMALL_GPT, *link]
    done = together.start(2, *program, "--compare", "serial", folder=str(tmp_path))
    assert done.codes == [0, 0], done.text
    # Equal bits print equal digits, so all six must agree.
    said = (
        r"serial +(.*)\nwith plait +\1\na step over 2gbit,20us: (.*\n)*matmul_all_reduce .* fused"
    )
    assert re.search(said, done.text), done.text
    done = together.start(2, *program, folder=str(tmp_path))
    assert all(done.codes)
    assert "--link needs --compare serial" in done.text
