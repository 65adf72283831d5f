"""Train a small GPT of Megatron-Core twice: as it is, and with plait. The losses are the same.

    torchrun --standalone --nproc-per-node 2 examples/python/megatron_gpt.py --sequence-parallel

The communication of Megatron's own layers goes over gloo. Ranks of one host share memory, which
leaves little to hide. --link 2gbit,20us --compare serial trains over a link that does not exist:
with plait's layers without overlap, and as plait plans it.
"""

import argparse
import contextlib
import os
import statistics
import time
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import plait.megatron  # noqa: E402
import plait.torch  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT with and without plait.")
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="of each of two sequences")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--schedule", default=None, help="auto, serial, pipelined or fused")
    parser.add_argument("--compare", choices=("megatron", "serial"), default="megatron")
    parser.add_argument("--link", help="emulate a link, such as 2gbit,20us")
    options = parser.parse_args()
    if options.link and options.compare == "megatron":
        parser.error("--link needs --compare serial: only what plait sends goes over such a link")
    return options


def make_model(options: argparse.Namespace, **settings: object) -> GPTModel:
    torch.manual_seed(0)
    dtype = DTYPES[options.dtype]
    world = dist.get_world_size()
    config = TransformerConfig(
        num_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=8,
        ffn_hidden_size=4 * options.hidden,
        tensor_model_parallel_size=world,
        sequence_parallel=options.sequence_parallel and world > 1,
        use_cpu_initialization=True,
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        **{"gradient_accumulation_fusion": False, **settings},
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=1024,
        max_sequence_length=options.tokens,
        position_embedding_type="rope",
    )


def make_step(options: argparse.Namespace) -> Callable[[], tuple[float, float]]:
    """Return what trains a model by one step, and returns the loss and the seconds it took."""
    model = make_model(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    tokens = torch.randint(
        1024, (2, options.tokens + 1), generator=torch.Generator().manual_seed(1)
    )
    positions = torch.arange(options.tokens).expand(2, -1)
    later = torch.triu(torch.ones(options.tokens, options.tokens, dtype=torch.bool), 1)

    def step() -> tuple[float, float]:
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        out = model(tokens[:, :-1], positions, later[None, None], labels=tokens[:, 1:])
        loss = out.float().mean()
        loss.backward()
        # With sequence parallelism ranks add up the gradients of what they all have.
        for parameter in model.parameters():
            if getattr(parameter, "sequence_parallel", False) and parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        spent = time.perf_counter() - begin
        return loss.item(), spent

    return step


def train(options: argparse.Namespace) -> tuple[list[float], float]:
    """Return the losses, and the median of the milliseconds that steps took."""
    step = make_step(options)
    losses, times = zip(*(step() for _ in range(options.steps)), strict=True)
    return list(losses), 1e3 * statistics.median(times[1:] or times)


def main() -> None:
    options = read_options()
    if options.link:
        os.environ["PLAIT_LINK"] = options.link
    torch.set_num_threads(1)
    plait.megatron.stand_in_for_cuda()  # where there is none
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    model_parallel_cuda_manual_seed(0)

    with contextlib.ExitStack() as layers:
        if options.compare == "serial":
            layers.enter_context(plait.megatron.enabled(schedule="serial"))
        losses, milliseconds = train(options)
    plait.torch.forget_report()
    plait.megatron.enable(schedule=options.schedule)
    with_plait, faster = train(options)

    transport = plait.torch.communicator().transport
    if dist.get_rank() == 0:
        print(f"{options.compare:<14}" + " ".join(f"{loss:.6f}" for loss in losses))
        print("with plait    " + " ".join(f"{loss:.6f}" for loss in with_plait))
        print(
            f"a step over {options.link or transport}: {milliseconds:.0f} ms; "
            f"with plait {faster:.0f} ms, {milliseconds / faster:.2f} times as fast\n"
        )
        print(plait.megatron.report())
    plait.megatron.disable()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
