"""The notebook, run as a user would, without Jupyter."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import completed

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "python" / "timeline.ipynb"


def code(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def shown(cells: list[dict[str, Any]]) -> str:
    outputs = [output for cell in cells for output in cell["outputs"]]
    texts = [one.get("text") or one["data"].get("text/html") for one in outputs]
    return "".join("".join(text) for text in texts)


@pytest.fixture
def executed(tmp_path: Path) -> Path:
    """A copy, in which the cell that trains is run twice, as one does in a notebook."""
    copy = tmp_path / "copy.ipynb"
    shutil.copy(NOTEBOOK, copy)
    notebook = json.loads(copy.read_text(encoding="utf-8"))
    training = next(cell for cell in notebook["cells"] if "train(0," in "".join(cell["source"]))
    notebook["cells"].insert(notebook["cells"].index(training), dict(training))
    copy.write_text(json.dumps(notebook), encoding="utf-8")
    completed(sys.executable, ROOT / "tools" / "run_notebook.py", copy)
    return copy


def test_shows_both_ranks(executed: Path) -> None:
    # The cells that are run now, and those kept in the notebook: two steps each time it trains.
    for cells, calls in ((code(executed), 4), (code(NOTEBOOK), 2)):
        text = shown(cells)
        losses = re.findall(r"^loss (\d\.\d+)$", text, re.MULTILINE)
        assert float(losses[1]) < float(losses[0])
        row = rf"^matmul_all_reduce +512 +256 +1024 f32 +f32 +{calls} "
        assert re.search(row, text, re.MULTILINE), text
        assert "<iframe srcdoc=" in text
        assert "all ranks of 2" in text
    assert NOTEBOOK.stat().st_size < 200_000
