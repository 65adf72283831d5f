"""`./do bench python`, in sizes that take seconds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

BENCH = Path(__file__).parents[2] / "bench" / "python"
MEASURE, REPORT = BENCH / "measure.py", BENCH.parent / "report.py"
NOT_ALLOWED = 77  # of namespaces


def test_prints_and_writes_every_row(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    figures = tmp_path / "python.json"
    done = subprocess.run(
        [*launch, str(MEASURE), "--seconds", "0.01", "--hidden", "64", "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert len(found["rows"]) == 17
    assert all(spent > 0 for row in found["rows"] for spent in row["values"].values())
    assert found["conditions"]["torch uses"] in done.stdout
    for row in found["rows"]:
        assert row["what"]["what"] in done.stdout
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: bench/report.py -->\nold\n")
    with page.open("a") as end:
        end.write("<!-- end: bench/report.py -->\nafter\n")
    wheel = tmp_path / "python-wheel.json"
    row = {
        "table": "The wheel",
        "what": {"what": "wheel"},
        "values": {"plait": 90.0},
        "unit": "s",
        "bar": {"at most": 360.0},
    }
    wheel.write_text(json.dumps({"conditions": {"date": "today"}, "rows": [row]}))
    update = [sys.executable, "-B", str(REPORT), "--update", str(page), str(figures), str(wheel)]
    subprocess.run(update, check=True, timeout=100)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("\n| ") == 2 + 17 + 1  # two heads
    assert "| wheel | 1.5 min | <= 6.0 min | yes |" in text
    assert found["conditions"]["plait uses"] in text


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
            *(sys.executable, str(BENCH / "users.py"), "megatron", "llama"),
            *(*sizes.split(), "--json", str(figures)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert [row["table"] for row in found["rows"]] == ["megatron"] * 4 + ["llama"] * 36
    for row in found["rows"]:
        assert row["before_ms"] > 0
        assert row["ms"] > 0
        assert row["bar"] is None  # bars are of other sizes
        assert row["agrees"]
        assert row["what"] in done.stdout
    for table, package in (("megatron", "megatron-core"), ("llama", "transformers")):
        uses = found["conditions"]["uses"][table]
        assert {"plait", "plait uses", "torch", "torch uses", package} <= uses.keys()
        assert f"{package} {uses[package]}" in done.stdout


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("megatron", "transformers"))),
    reason="needs megatron-core and transformers",
)
def test_users_of_two_hosts(tmp_path: Path) -> None:
    figures = tmp_path / "users.json"
    sizes = "--hidden 64 --layers 1 --tokens 16 --prompt 16 --generated 4 --rounds 1 --settle 1"
    done = subprocess.run(
        [
            *(sys.executable, "-B", str(BENCH.parent / "network" / "users.py")),
            *("--rates", "1gbit", "--rows", "megatron-f32-sp,llama-bf16"),
            *(*sizes.split(), "--json", str(figures)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode == NOT_ALLOWED:
        pytest.skip(done.stderr.strip().removeprefix("bench network users: "))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # progress is for terminals
    found = json.loads(figures.read_text())
    names = ["megatron-f32-sp step", "llama-bf16 prefill", "llama-bf16 decode"]
    assert [row["what"]["what"] for row in found["rows"]] == 2 * names
    for row in found["rows"]:
        assert all(row["values"].values())  # neither no time nor no plan
        assert row["what"]["what"] in done.stdout
    for case in found["cases"]:
        assert case["transport"] == "tcp"
        assert len(case["tried"]) == 8
        assert {"native", "plait", *case["best"].values()} <= case["seconds"].keys()
        assert "matmul_" in case["report"]
    assert f"plait uses {found['conditions']['plait uses']}" in done.stdout
