"""`./do bench python`, in sizes that take seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "python"
MEASURE, REPORT = BENCH / "measure.py", BENCH / "report.py"


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
    assert len(found["rows"]) == 14
    assert all(spent > 0 for row in found["rows"] for spent in row["seconds"].values())
    assert found["conditions"]["torch uses"] in done.stdout
    for row in found["rows"]:
        assert row["what"] in done.stdout
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: bench/python/report.py -->\nold\n")
    with page.open("a") as end:
        end.write("<!-- end: bench/python/report.py -->\nafter\n")
    wheel = tmp_path / "python-wheel.json"
    row = {"what": "wheel", "seconds": {"plait": 90.0}, "at most": 360.0}
    wheel.write_text(json.dumps({"conditions": {"date": "today"}, "rows": [row]}))
    update = [sys.executable, "-B", str(REPORT), "--update", str(page), str(figures), str(wheel)]
    subprocess.run(update, check=True, timeout=100)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("\n| ") == 2 + 14 + 1  # two heads
    assert "| wheel | 1.5 min |  |  | <= 6.0 min | ok |" in text
    assert found["conditions"]["plait uses"] in text
