import time

import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt

dist.init_process_group("gloo")
torch.manual_seed(0)  # every rank makes the same whole layers, and keeps its share
up = pt.ColumnParallelLinear.from_linear(nn.Linear(1024, 4096).bfloat16())
down = pt.RowParallelLinear.from_linear(nn.Linear(4096, 1024).bfloat16())
x = torch.randn(512, 1024).bfloat16()
with torch.no_grad():
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(8):
            y = down(torch.relu(up(x)))
        each = (time.perf_counter() - begin) / 8
        if dist.get_rank() == 0:
            print(f"{each * 1e3:.1f}", end=" ")
if dist.get_rank() == 0:
    comm = pt.communicator()
    print(f"ms a call; hosts {comm.hosts}, over {comm.transport}")
    print(pt.report())
dist.destroy_process_group()
