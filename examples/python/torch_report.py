import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt

pt.init()
torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
options = pt.Options(schedule="fused")
pt.parallelize(mlp, {"0": "colwise", "2": "rowwise"}, options=options)
for _ in range(8):
    mlp(torch.randn(256, 512, requires_grad=True)).square().mean().backward()
if dist.get_rank() == 0:
    print(pt.report())
