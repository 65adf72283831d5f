"""Functions that the graphs of torch.compile() leave to Python."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])


def outside_of_graphs(function: _Function) -> _Function:
    """Let compiled programs call a function as it is: a graph ends before it.

    It does what torch.compiler.disable() would, which loads the compiler in every program.
    """
    marked: Any = function
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "a layer of plait ends a graph, and can't be exported"
    frames: Any = torch._C._dynamo.eval_frame
    with contextlib.suppress(AttributeError):  # a torch with other names tries to compile it first
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(marked.__code__, frames._FrameExecStrategy(skip, skip))
    return function
