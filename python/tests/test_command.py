"""`python -m plait` and `plait` are the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import completed

import plait
from plait import __main__

WAYS = {
    "module": [sys.executable, "-m", "plait"],
    "script": [f"{Path(sys.executable).parent}/plait"],
}


@pytest.mark.parametrize("way", WAYS)
def test_says_its_version(way: str) -> None:
    done = subprocess.run([*WAYS[way], "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"plait {plait.__version__}\n"


def test_starts_ranks_of_python() -> None:
    program = """
import numpy as np, plait
comm = plait.Communicator.connect()
x = np.full(1, comm.rank + 1.0, dtype=np.float32)
plait.all_reduce(x, comm)
print(f"{comm.world} {comm.transport} {x[0]}\\n", end="")
"""
    command = [*WAYS["module"], "run", "-n", "2", "--", sys.executable, "-c", program]
    done = completed(*command, timeout=120)
    assert done.stdout.count("2 shm 3.0") == 2


def test_exit_status_is_the_commands() -> None:
    assert subprocess.run([*WAYS["module"], "no-verb"], capture_output=True, check=False).returncode


def test_without_it_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(__main__, "__file__", str(tmp_path / "__main__.py"))
    with pytest.raises(SystemExit, match="installed without its command"):
        __main__.main()
    assert os.listdir(tmp_path) == []
