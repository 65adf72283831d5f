"""`./do bench python`, in sizes that take seconds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = Path(__file__).parents[2] / "bench" / "python" / "measure.py"


def test_prints_and_writes_every_row(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    figures = tmp_path / "python.json"
    done = subprocess.run(
        [*launch, str(MEASURE), "--seconds", "0.01", "--hidden", "64", "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert len(found["rows"]) == 13
    assert all(spent > 0 for row in found["rows"] for spent in row["seconds"].values())
    assert found["conditions"]["torch uses"] in done.stdout
    for row in found["rows"]:
        assert row["what"] in done.stdout


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("megatron", "transformers"))),
    reason="needs megatron-core and transformers",
)
def test_users_gain_and_compute_the_same(tmp_path: Path) -> None:
    """It ends with 1 where losses or tokens differ."""
    figures = tmp_path / "users.json"
    sizes = "--hidden 64 --layers 1 --tokens 16 --prompt 16 --generated 4 --rounds 1 --turns 1"
    done = subprocess.run(
        [
            *(sys.executable, str(MEASURE.with_name("users.py")), "megatron", "llama"),
            *(*sizes.split(), "--json", str(figures)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert [row["table"] for row in found["rows"]] == ["megatron"] * 4 + ["llama"] * 24
    for row in found["rows"]:
        assert row["before_ms"] > 0
        assert row["ms"] > 0
        assert row["bar"] is None  # bars are of other sizes
        assert row["agrees"] or "bfloat16" in row["what"]
        assert row["what"] in done.stdout
    for table, package in (("megatron", "megatron-core"), ("llama", "transformers")):
        uses = found["conditions"]["uses"][table]
        assert {"plait", "plait uses", "torch", "torch uses", package} <= uses.keys()
        assert f"{package} {uses[package]}" in done.stdout
