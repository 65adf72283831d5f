import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig

import plait.megatron

dist.init_process_group("gloo")
world = dist.get_world_size()
parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
plait.megatron.enable()

config = TransformerConfig(
    num_layers=1,
    hidden_size=512,
    num_attention_heads=8,
    tensor_model_parallel_size=world,
    use_cpu_initialization=True,
)
how = {"config": config, "init_method": torch.nn.init.xavier_normal_, "skip_bias_add": False}
up = ColumnParallelLinear(512, 2048, **how)
down = RowParallelLinear(2048, 512, bias=True, input_is_parallel=True, **how)
x = torch.randn(256, 1, 512, requires_grad=True)
out, _ = down(torch.relu(up(x)[0]))
out.square().mean().backward()

if dist.get_rank() == 0:
    print(plait.megatron.report())
dist.destroy_process_group()
