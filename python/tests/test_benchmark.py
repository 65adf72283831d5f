"""`./do bench python`, in sizes that take seconds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

BENCH = Path(__file__).parents[2] / "bench" / "python"
NOT_ALLOWED = 77  # of namespaces

needs_users = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("megatron", "transformers"))),
    reason="needs megatron-core and transformers",
)


@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="needs megatron-core")
def test_steps_of_models(tmp_path: Path) -> None:
    """It ends with 1 where the losses of two plans differ by a bit."""
    words = "--models llama2-70b --rounds 1 --tokens 64 --width 0.015625"
    done = subprocess.run(
        [str(BENCH.parent / "models" / "run.sh"), *words.split()],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PLAIT_PYTHON": sys.executable, "RESULTS": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "models_llama2-70b.json").read_text())["rows"]
    plans = {"2 parts", "4 parts", "8 parts", "fused", "automatic"}
    assert plans | {"link", "communication", "allowed", "published"} <= row["values"].keys()
    assert row["values"]["published"] == "7.85 %"
    assert 0.05 < float(row["what"]["wanted share"]) < 0.3
    assert "7.85 %" in done.stdout


def measure(folder: Path, *command: object) -> tuple[dict[str, Any], str]:
    """Run a benchmark, and return its figures and the page that it prints."""
    figures = folder / "figures.json"
    done = subprocess.run(
        [sys.executable, *map(str, command), "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.returncode == NOT_ALLOWED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(figures.read_text()), done.stdout


def test_prints_and_writes_every_row(tmp_path: Path) -> None:
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    sizes = ("--seconds", 0.01, "--hidden", 64)
    found, printed = measure(tmp_path, *launch, BENCH / "measure.py", *sizes)
    assert len(found["rows"]) == 18
    assert all(spent > 0 for row in found["rows"] for spent in row["values"].values())
    assert found["conditions"]["torch uses"] in printed
    for row in found["rows"]:
        assert row["what"]["what"] in printed


@needs_users
def test_users_gain_and_compute_the_same(tmp_path: Path) -> None:
    """It ends with 1 where losses or tokens differ."""
    sizes = "--hidden 64 --layers 1 --tokens 16 --prompt 16 --generated 4 --rounds 1 --turns 1"
    users = (BENCH / "users.py", "megatron", "llama", "--dtypes", "bfloat16", *sizes.split())
    found, printed = measure(tmp_path, *users)
    assert [row["table"] for row in found["rows"]] == ["megatron"] * 4 + ["llama"] * 12
    for row in found["rows"]:
        assert row["before_ms"] > 0
        assert row["ms"] > 0
        assert row["bar"] is None  # bars are of other sizes
        assert row["agrees"]
        assert row["what"] in printed
    for table, package in (("megatron", "megatron-core"), ("llama", "transformers")):
        uses = found["conditions"]["uses"][table]
        assert {"plait", "plait uses", "torch", "torch uses", package} <= uses.keys()
        assert f"{package} {uses[package]}" in printed


@needs_users
def test_users_of_two_hosts(tmp_path: Path) -> None:
    sizes = "--hidden 64 --layers 1 --tokens 16 --prompt 16 --generated 4 --rounds 1 --settle 1"
    rows = ("--rates", "1gbit", "--rows", "megatron-f32-sp,llama-bf16")
    users = BENCH.parent / "network" / "users.py"
    found, printed = measure(tmp_path, users, *rows, *sizes.split())
    names = ["megatron-f32-sp step", "llama-bf16 prefill", "llama-bf16 decode"]
    assert [row["what"]["what"] for row in found["rows"]] == 2 * names
    for row in found["rows"]:
        unknown = [what for what, value in row["values"].items() if not value]
        # A decode has no first call of its own; else there is neither no time nor no plan.
        assert set(unknown) <= ({"first over native's"} if "decode" in str(row["what"]) else set())
        assert row["what"]["what"] in printed
    for case in found["cases"]:
        assert case["transport"] == "tcp"
        assert len(case["tried"]) == 8
        assert {"native", "plait", *case["best"].values()} <= case["seconds"].keys()
        assert "matmul_" in case["report"]
    assert f"plait uses {found['conditions']['plait uses']}" in printed
