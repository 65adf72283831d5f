"""Train a small GPT of experts twice: with Megatron-Core's layer of experts, and with plait's.

    torchrun --standalone --nproc-per-node 2 examples/python/megatron_experts.py

Each rank has its own sequences, and some of the experts. Megatron routes in both. Its dispatcher
sends tokens to the ranks of their experts by several messages over gloo, one after another. plait
multiplies by experts while other tokens travel.
"""

import argparse
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")

import plait.megatron  # noqa: E402

plait.megatron.stand_in_for_cuda()  # on hosts without CUDA

from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.moe.moe_layer import MoELayer  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import plait.torch  # noqa: E402


class Experts(torch.nn.Module):
    """Megatron's router, and the experts of its layer in plait's."""

    def __init__(self, theirs: MoELayer) -> None:
        super().__init__()
        self.router, self.top = theirs.router, theirs.config.moe_router_topk
        own = theirs.experts.local_experts  # --moe-grouped-gemm has other names for them
        self.experts = plait.torch.ExpertParallel(
            torch.stack([one.linear_fc1.weight.detach() for one in own]).requires_grad_(),
            torch.stack([one.linear_fc2.weight.detach() for one in own]).requires_grad_(),
            experts=theirs.config.num_moe_experts,
            group=theirs.ep_group,
        )

    def forward(self, hidden: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        probabilities, chosen = self.router(hidden)  # [tokens, experts]
        weights, ids = probabilities.masked_fill(~chosen, -1).topk(self.top)
        slots = (*hidden.shape[:-1], self.top)
        return self.experts(hidden, ids.view(slots), weights.view(slots)), None


def make_model(tokens: int) -> GPTModel:
    torch.manual_seed(0)
    model_parallel_cuda_manual_seed(0)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=128,
        num_attention_heads=4,
        num_moe_experts=8,
        moe_router_topk=2,
        moe_ffn_hidden_size=96,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall",
        expert_model_parallel_size=dist.get_world_size(),
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
    )
    spec = get_gpt_layer_local_spec(num_experts=8, moe_grouped_gemm=False)
    return GPTModel(
        config, spec, vocab_size=256, max_sequence_length=tokens, position_embedding_type="rope"
    )


def train(model: GPTModel, tokens: int, steps: int) -> tuple[list[float], float]:
    """Return the losses of all ranks' sequences, and the seconds of the fastest step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    data = torch.randint(256, (4, tokens + 1), generator=torch.Generator().manual_seed(1))
    mine = data.tensor_split(world)[rank]
    positions = torch.arange(tokens).expand(len(mine), -1)
    later = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1)[None, None]
    losses, seconds = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(mine[:, :-1], positions, later, labels=mine[:, 1:]).sum() / (4 * tokens)
        loss.backward()
        for name, parameter in model.named_parameters():
            if ".experts." not in name:  # those have the gradients of all ranks' tokens
                dist.all_reduce(parameter.grad)
        optimizer.step()
        whole = loss.detach()
        dist.all_reduce(whole)
        losses.append(whole.item())
        seconds.append(time.perf_counter() - begin)
    return losses, min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=128, help="of each of four sequences")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(expert_model_parallel_size=dist.get_world_size())
    for name in ("megatron", "with plait"):
        model = make_model(options.tokens)
        if name == "with plait":
            for layer in model.decoder.layers:
                layer.mlp = Experts(layer.mlp)
        losses, seconds = train(model, options.tokens, options.steps)
        if dist.get_rank() == 0:
            said = " ".join(f"{loss:.6f}" for loss in losses)
            print(f"{name:<12}{said}  {1000 * seconds:.0f} ms a step")
    if dist.get_rank() == 0:
        print(plait.torch.report())
    dist.destroy_process_group()


main()
