"""How torch finds the backend, and what happens where it can't load."""

import os
import sys

import pytest
import torch
import torch.distributed as dist
from launching import completed

from plait import _entry, _vllm_plugin

GROUP = """
dist.init_process_group("plait", init_method="file://{file}", rank=0, world_size=1)
x = torch.ones(2)
dist.all_reduce(x)
dist.destroy_process_group()
print(type(x).__name__)
"""


def run(program: str, **environment: str) -> str:
    said: str = completed(sys.executable, "-c", program, timeout=120, **environment).stdout
    return said


@pytest.mark.parametrize("imports", ["torch", "plait.torch, torch", "torch, plait.torch"])
def test_needs_no_import_and_stands_any_order(imports: str, tmp_path: os.PathLike[str]) -> None:
    program = f"import {imports}, torch.distributed as dist" + GROUP.format(
        file=f"{tmp_path}/store"
    )
    assert run(program) == "Tensor\n"


def test_without_autoload_an_import_is_enough(tmp_path: os.PathLike[str]) -> None:
    program = "import torch, torch.distributed as dist, plait.torch"
    program += GROUP.format(file=f"{tmp_path}/store")
    assert run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "Tensor\n"


def test_importing_torch_loads_nothing_of_plait_but_the_entry() -> None:
    program = "import torch, sys; print(sorted(m for m in sys.modules if m.startswith('plait.')))"
    loaded = run(program)
    assert "plait._entry" in loaded
    assert "plait.torch" not in loaded


def test_may_run_again() -> None:
    _entry.torch_backend()
    assert dist.Backend.backend_list.count("plait") == 1
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def test_logs_instead_of_raising(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses() -> bool:
        raise ImportError("half installed")

    monkeypatch.setattr(torch.distributed, "is_available", refuses)
    _entry.torch_backend()
    assert "could not be registered" in caplog.text


def test_the_plugin_of_vllm_logs_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # as where it can't be imported
    _vllm_plugin.enable()
    assert "vLLM's layers are left as they are" in caplog.text
