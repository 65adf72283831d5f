import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt

dist.init_process_group("gloo")
torch.manual_seed(0)  # every rank makes the same whole layers, and keeps its share
up = pt.ColumnParallelLinear.from_linear(nn.Linear(1024, 4096))
down = pt.RowParallelLinear.from_linear(nn.Linear(4096, 1024))
y = down(torch.relu(up(torch.randn(256, 1024))))
y.square().mean().backward()
if dist.get_rank() == 0:
    print(pt.report())
