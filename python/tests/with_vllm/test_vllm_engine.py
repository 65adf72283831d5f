"""vLLM's own engine on two ranks: the tokens of the example, with plait and without; its server."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "vllm_generate.py"
COUNTED = str(list(range(8, 24)))  # what the model has learned
LAYERS = {"QKVParallelLinear": 2, "MergedColumnParallelLinear": 2, "RowParallelLinear": 4}
# In seconds. vLLM itself waits for its workers without a limit.
LIMIT = 800

only_in_its_own_run = pytest.mark.skipif(
    "PLAIT_TEST_BRIEFLY" in os.environ,
    reason="an engine of its own takes a minute: ./do test vllm",
)


def launch(
    program: list[str],
    compiled: Path,
    variables: dict[str, str],
    output: IO[str] | int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *program],
        stdout=output,
        stderr=output,
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


def start(compiled: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return launch([str(EXAMPLE), *arguments], compiled, variables)


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


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The example, traced: its model, the tokens and the report."""
    folder = tmp_path_factory.mktemp("traced")
    model = folder / "model"
    how = ("--dtype", "float32", "--graphs", "--folder", str(model))
    return model, *run(folder, *how, VLLM_CPU_CI_ENV="1")


def check_report(report: str, dtype: str) -> None:
    """Every layer is served, but for those whose product vLLM made faster when it was loaded."""
    served = r"[1-9]\d+ calls served by plait"
    rows = rf"^(\d+) (\w+Linear): (?:({served})|left to vLLM: its own product of .*)$"
    found = re.findall(rows, report, re.MULTILINE)
    loaded: dict[str, int] = dict.fromkeys(LAYERS, 0)
    for layers, layer, _ in found:
        loaded[layer] += int(layers)
    assert loaded == LAYERS, report
    assert any(calls for _, _, calls in found), report
    assert f" {'f32' if dtype == 'float32' else 'bf16'} " in report


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


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The example with experts: its model, the tokens and the report."""
    folder = tmp_path_factory.mktemp("experts")
    model = folder / "model"
    how = ("--dtype", "bfloat16", "--experts", "--folder", str(model))
    return model, *run(folder, *how)


@only_in_its_own_run
def test_tokens_of_experts_that_ranks_share(experts: tuple[Path, str, str]) -> None:
    _, tokens, report = experts
    assert tokens == COUNTED
    assert re.search("^2 RoutedExperts: [1-9][0-9]+ calls served by plait$", report, re.MULTILINE)


def test_tokens_of_a_traced_model(traced: tuple[Path, str, str]) -> None:
    """Nothing in the program asks for plait: the installed package brings the plugin.

    Under VLLM_CPU_CI_ENV, the model's graphs are traced, but not compiled.
    """
    _, tokens, report = traced
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


# The command of docs/guides/vllm.md. `vllm serve` does not start with vllm-cpu 0.32.0.
SERVER = ["-m", "vllm.entrypoints.openai.api_server"]
SERVER += ["--worker-extension-cls", "plait.vllm.WorkerReport", "--dtype", "bfloat16"]
SERVER += ["--max-model-len", "256", "--kv-cache-memory-bytes", str(2**26)]
SERVER += ["--skip-tokenizer-init"]


def ask(port: int, path: str, seconds: float, body: dict[str, Any] | None = None) -> Any:
    """Return what the server answers, as JSON; raise OSError if it does not answer yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    with contextlib.closing(connection):
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        return json.loads(said or "null")


def wait_for(server: subprocess.Popen[str], port: int) -> None:
    """Wait until the server answers; it loads the model first."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server has ended"
        with contextlib.suppress(OSError):
            ask(port, "/health", 10)
            return
        time.sleep(0.2)
    pytest.fail(f"the server does not answer after {LIMIT} s")


@contextlib.contextmanager
def serving(model: Path, folder: Path, *arguments: str) -> Iterator[int]:
    """Start a server, and end it: by SIGTERM after what is done with its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    where = ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",  # so that workers can be asked for their reports
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, sorted(os.sched_getaffinity(0))[:2])),
    }
    log = folder / "log"
    with log.open("w") as output:
        server = launch([*SERVER, *where, *arguments], folder, variables, output)
    try:
        wait_for(server, port)
        yield port
        server.terminate()
        assert server.wait(100) == 0
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        end(server)


def complete(port: int, first: int = 5) -> str:
    prompt = {"prompt": list(range(first, first + 3)), "max_tokens": 16, "temperature": 0}
    how = {"ignore_eos": True, "return_token_ids": True}
    return str(ask(port, "/v1/completions", 100, {**prompt, **how})["choices"][0]["token_ids"])


def test_server_gives_the_learnt_tokens(traced: tuple[Path, str, str], tmp_path: Path) -> None:
    with serving(traced[0], tmp_path, "--tensor-parallel-size", "2", "--enforce-eager") as port:
        tokens = complete(port)
        reports = ask(port, "/collective_rpc", 100, {"method": "plait_report"})["results"]
    assert tokens == COUNTED
    assert len(reports) == 2
    for report in reports:
        check_report(report, "bfloat16")


@only_in_its_own_run
def test_data_parallel_ranks_share_experts(experts: tuple[Path, str, str], tmp_path: Path) -> None:
    """With compiled graphs: one request at a time, in which the other rank has a row of zeros."""
    how = ["--data-parallel-size", "2", "--enable-expert-parallel"]
    with serving(experts[0], tmp_path, *how) as port:
        for first in 5, 6, 7:
            expected = list(range(first + 3, first + 19))
            assert complete(port, first) == str(expected)
        [report] = ask(port, "/collective_rpc", 100, {"method": "plait_report"})["results"]
    assert re.search("^2 RoutedExperts: [1-9][0-9]+ calls served by plait$", report, re.MULTILINE)
    assert re.search("^10 experts of 256 x 96, .* sent [1-9]", report, re.MULTILINE)
