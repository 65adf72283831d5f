import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce

import plait.torch as pt
import plait.torch.compiler

comm = pt.init("gloo")
plait.torch.compiler.enable()


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(all_reduce(x @ w, "sum", dist.group.WORLD))


compiled = torch.compile(layer)
x, w = torch.randn(256, 512), torch.randn(512, 512)
same = torch.allclose(compiled(x, w), layer(x, w), atol=1e-3)
if comm.rank == 0:
    print(f"the same values: {same}")
    print(pt.report())
