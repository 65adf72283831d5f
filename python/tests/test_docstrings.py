"""The examples in docstrings, in one process without process groups."""

import doctest
import importlib

import pytest

MODULES = [
    "plait.errors",
    "plait.torch.linear",
    "plait.torch.operators",
    "plait.torch.options",
    "plait.torch.parallelize",
    "plait.torch.tensors",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    given = {"torch": importlib.import_module("torch"), **vars(module)}
    result = doctest.testmod(module, extraglobs=given)
    assert result.attempted > 0
    assert result.failed == 0
