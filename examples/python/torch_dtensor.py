import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import plait.torch as pt
from plait.torch.dtensor import ColwiseParallel, RowwiseParallel  # in place of torch's

comm = pt.init("gloo")
torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
mesh = init_device_mesh("cpu", (comm.world,))
parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
mlp(torch.randn(256, 512)).sum().backward()
if comm.rank == 0:
    print(f"{type(mlp[0].weight.data).__name__}s, and served:")
    print(pt.report())
