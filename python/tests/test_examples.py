"""The programs that the documents show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
LAUNCHERS = {
    "all_reduce.py": [sys.executable, "-m", "plait", "run", "-n", "2", "--", sys.executable],
    "torch_backend.py": [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_runs(name: str) -> None:
    done = subprocess.run(
        [*LAUNCHERS[name], str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    for rank in range(2):
        assert any(f"rank {rank}" in line for line in lines)
