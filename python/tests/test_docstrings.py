"""The examples in docstrings, in one process without process groups."""

import doctest
import importlib
from pathlib import Path

import pytest

import plait

FOLDER = Path(plait.__file__).parent


def name_of(file: Path) -> str:
    parts = file.relative_to(FOLDER.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = [name_of(file) for file in sorted(FOLDER.rglob("*.py")) if ">>> " in file.read_text()]


def test_examples_are_found() -> None:
    assert {"plait.errors", "plait.threads", "plait.torch.operators"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    given = {"torch": importlib.import_module("torch"), **vars(module)}
    result = doctest.testmod(module, extraglobs=given)
    assert result.attempted > 0
    assert result.failed == 0
