"""vLLM's own engine on two ranks: the tokens of the example, with plait and without."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "vllm_generate.py"


def run(*arguments: str, **variables: str) -> tuple[str, str]:
    """Return the tokens, and the report."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^\[(\d+, ){15}\d+\]$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return found[0], done.stdout[found.end() :]


@pytest.mark.parametrize("graphs", [[], ["--graphs"]], ids=["eager", "graphs"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tokens(dtype: str, graphs: list[str]) -> None:
    """Nothing in the program asks for plait: the installed package brings the plugin."""
    tokens, report = run("--dtype", dtype, *graphs)
    expected, without = run("--dtype", dtype, *graphs, VLLM_PLUGINS="")
    assert tokens == expected == str(list(range(8, 24)))  # what the model has learned
    assert "no tensor-parallel layer was loaded" in without
    for layers in ("2 QKVParallelLinear", "2 MergedColumnParallelLinear", "4 RowParallelLinear"):
        assert re.search(rf"^{layers}: [1-9]\d+ calls served by plait$", report, re.MULTILINE)
    assert f" {'f32' if dtype == 'float32' else 'bf16'} " in report
