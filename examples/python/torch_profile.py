import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt

pt.init()
torch.manual_seed(0)
mlp = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
pt.parallelize(mlp, {"0": "colwise", "2": "rowwise"})
x = torch.randn(256, 512, requires_grad=True)
mlp(x).sum().backward()  # the first step prepares
with pt.profile() as p:
    mlp(x).sum().backward()
if dist.get_rank() == 0:
    print(p.table())
    p.save("step.html")  # the timeline of all ranks; in a notebook, `p` shows it
