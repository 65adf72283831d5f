"""vLLM's own engine on two ranks: the tokens of the example, with plait and without."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "vllm_generate.py"
COUNTED = str(list(range(8, 24)))  # what the model has learned
LAYERS = ("2 QKVParallelLinear", "2 MergedColumnParallelLinear", "4 RowParallelLinear")
# In seconds. vLLM itself waits for its workers without a limit.
LIMIT = 800

only_in_its_own_run = pytest.mark.skipif(
    "PLAIT_TEST_BRIEFLY" in os.environ,
    reason="an engine of its own takes a minute: ./do test vllm",
)


def start(compiled: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, EXAMPLE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": str(Path(sys.prefix) / "cache"),  # what it finds out about a model
            "TORCHINDUCTOR_CACHE_DIR": str(compiled),
            **variables,
        },
    )


def end(program: subprocess.Popen[str]) -> None:
    """Kill a program and the processes of its engine, which may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def finish(program: subprocess.Popen[str], deadline: float) -> tuple[str, str]:
    """Return the tokens, and the report. The output ends when the last of the processes does."""
    try:
        said, errors = program.communicate(timeout=max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        end(program)
        pytest.fail(f"ended after {LIMIT} s:\n" + "".join(program.communicate()))
    assert program.returncode == 0, said + errors
    found = re.search(r"^\[(\d+, ){15}\d+\]$", said, re.MULTILINE)
    assert found is not None, said
    return found[0], said[found.end() :]


def run(compiled: Path, *arguments: str, **variables: str) -> tuple[str, str]:
    program = start(compiled, *arguments, **variables)
    try:
        return finish(program, time.monotonic() + LIMIT)
    finally:
        end(program)


def check_report(report: str, dtype: str) -> None:
    for layers in LAYERS:
        assert re.search(rf"^{layers}: [1-9]\d+ calls served by plait$", report, re.MULTILINE)
    assert f" {'f32' if dtype == 'float32' else 'bf16'} " in report


def test_tokens_are_those_that_were_learnt(tmp_path: Path) -> None:
    """Nothing in the program asks for plait: the installed package brings the plugin."""
    tokens, report = run(tmp_path, "--dtype", "bfloat16")
    assert tokens == COUNTED
    check_report(report, "bfloat16")


@only_in_its_own_run
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_tokens_are_those_of_vllm_alone(dtype: str, tmp_path: Path) -> None:
    deadline = time.monotonic() + LIMIT
    # Both at once: most of the time is spent importing modules, one process after another.
    ours = start(tmp_path / "ours", "--dtype", dtype)
    theirs = start(tmp_path / "theirs", "--dtype", dtype, VLLM_PLUGINS="")
    try:
        tokens, report = finish(ours, deadline)
        expected, without = finish(theirs, deadline)
    finally:
        end(ours)
        end(theirs)
    assert tokens == expected == COUNTED
    assert "no tensor-parallel layer was loaded" in without
    check_report(report, dtype)


def test_tokens_of_a_traced_model(tmp_path: Path) -> None:
    """What VLLM_CPU_CI_ENV is for: the model's graphs are traced, but not compiled."""
    tokens, report = run(tmp_path, "--dtype", "float32", "--graphs", VLLM_CPU_CI_ENV="1")
    assert tokens == COUNTED
    check_report(report, "float32")


@only_in_its_own_run
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_tokens_of_compiled_graphs(dtype: str, tmp_path: Path) -> None:
    """Each kind of layers has a kept graph of its own, which the next process finds."""
    arguments = ["--dtype", dtype, "--graphs", "--folder", str(tmp_path / "model")]
    caches = {"VLLM_CACHE_ROOT": str(tmp_path)}
    # The plugin refuses this plan, and leaves the layers to vLLM.
    expected, without = run(tmp_path / "theirs", *arguments, PLAIT_PLAN="nothing known", **caches)
    tokens, report = run(tmp_path / "ours", *arguments, **caches)
    again, _ = run(tmp_path / "ours", *arguments, **caches)
    assert tokens == again == expected == COUNTED
    assert "no tensor-parallel layer was loaded" in without
    check_report(report, dtype)
    assert len(list((tmp_path / "torch_compile_cache" / "torch_aot_compile").iterdir())) == 2
