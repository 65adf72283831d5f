#!/usr/bin/env python3
"""Run the cells of a notebook, and keep what they show in it. Its cells are plain Python.

    tools/run_notebook.py examples/python/timeline.ipynb

It takes no Jupyter. A cell shows what it prints and what its last line is worth: as HTML where that
has a _repr_html_(), else as text.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path


def run_cell(source: str, names: dict[str, object]) -> list[dict]:
    """Return a cell's outputs, as a notebook keeps them."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        shown = value._repr_html_() if hasattr(value, "_repr_html_") else None
        data = {"text/plain": lines(repr(value))} if shown is None else {"text/html": lines(shown)}
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    path = Path(sys.argv[1])
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = run_cell("".join(cell["source"]), names)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
