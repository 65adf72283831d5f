import time

import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt

pt.init("gloo")
torch.manual_seed(0)
linear, x = nn.Linear(2048, 1024), torch.randn(256, 2048 // dist.get_world_size())
for options in (
    pt.Options(),  # plait's products and collectives
    pt.Options(engine="c10d", schedule="serial"),  # torch's, one after the other
    pt.Options(engine="c10d", schedule="pipelined", parts=4),
):
    layer = pt.RowParallelLinear.from_linear(linear, options=options)
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        layer(x).sum().backward()
        times.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        print(f"{options.engine}, {options.schedule or 'automatic'}: {min(times) * 1e3:.1f} ms")
