import os

import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import plait.torch as pt
from plait.torch.dtensor import ColwiseParallel, RowwiseParallel

comm = pt.init("gloo")
mlp = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
mesh = init_device_mesh("cpu", (comm.world,))
parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
state = get_model_state_dict(mlp)  # DTensors: each rank has its shares
if done := os.path.exists("mlp.checkpoint/.metadata"):  # written last, by any number of ranks
    dcp.load(state, checkpoint_id="mlp.checkpoint")
    set_model_state_dict(mlp, state)
else:
    dcp.save(state, checkpoint_id="mlp.checkpoint")
whole = get_model_state_dict(mlp, options=StateDictOptions(full_state_dict=True))  # plain tensors
if comm.rank == 0:
    shape, total = list(whole["0.weight"].shape), whole["0.weight"].sum()
    print(f"{'loaded' if done else 'saved'} by {comm.world}: {shape}, with the sum {total:.3f}")
