"""The examples in docstrings, in one process without process groups."""

import doctest
import importlib
import re
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


SOURCES = Path(__file__).parents[2]
# Bound with what uses them.
WITH_OTHERS = {"link.h": "Link", "quant_scheme.h": "QuantScheme", "sum_tree.h": "SumTree"}


def test_every_header_is_bound_or_named_with_a_reason() -> None:
    bound = set()
    for source in (SOURCES / "python" / "native").iterdir():
        bound |= set(re.findall(r'#include "plait/(\w+\.h)"', source.read_text()))
    headers = {file.name for file in (SOURCES / "include" / "plait").glob("*.h")}
    left_out = headers - bound - set(WITH_OTHERS)
    assert plait.__doc__ is not None
    paragraphs = plait.__doc__.split("These headers have no names here:")[1]
    named = set(re.findall(r"\w+\.h\b", paragraphs))
    assert named - left_out == {"gemm.h", "plan.h", "tag.h"}  # of which parts are bound or used
    assert left_out - named == set()
    assert all(hasattr(plait, name) for name in WITH_OTHERS.values())
