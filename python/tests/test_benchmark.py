"""`./do bench python`, in sizes that take seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
