"""vLLM's layers between two hosts: automatic plans, and sums as wide as the operands."""

from pathlib import Path

from hosts import SHOW_PLANS, Hosts, expect_automatic

LAYER = """
import os
import sys
os.environ["VLLM_PLUGINS"] = ""
import torch
import torch.distributed as dist
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.model_executor.layers.linear import RowParallelLinear
import plait.torch
import plait.vllm

torch.set_num_threads(1)
# These hosts share their memory, which vLLM would notice and use.
CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
rank = int(os.environ["RANK"])
with set_current_vllm_config(VllmConfig()), torch.inference_mode():
    parallel_state.init_distributed_environment(2, rank, "env://", 0, "gloo")
    parallel_state.initialize_model_parallel(2, backend="gloo")
    plait.vllm.enable()
    layer = RowParallelLinear(256, 96, bias=False, params_dtype=torch.bfloat16)
    layer.weight.data.normal_()
    layer.quant_method.process_weights_after_loading(layer)
    for _ in range(6):
        layer(torch.randn(64, 128).bfloat16())
"""


def test_layers_have_automatic_plans(hosts: Hosts, tmp_path: Path) -> None:
    ranks = hosts.run(LAYER + SHOW_PLANS, XDG_CACHE_HOME=str(tmp_path))
    expect_automatic(ranks, "matmul_all_reduce")
