"""Train two layers of a model over an emulated link, in every plan, for bench/report.py.

    torchrun --standalone --nproc-per-node 2 bench/models/steps.py llama2-70b --share 0.137 \
        --json build/bench/models_llama2-70b.json

A step is whole: embedding, attention, blocks, head, loss, backward and Adam, by Megatron-Core's
GPT model with sequence parallelism. Every plan trains a model of its own from the same weights, and
all take turns. One more has no link: what it saves is all that hiding communication can gain. The
losses of all must be the same bits.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")

from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import plait.megatron  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

TABLE = "Whole training steps of CoC's models over emulated links: gain over the serial step"
LAYERS = 2
SEED = 1234  # Megatron-LM's own
RATE = 1e-4  # of learning
HEAD = 64  # the size of an attention head, so that narrow models have enough heads to share
NOISE = 0.02  # of a step: the error of two medians, as in src/measure/race.h
CLOSE = 0.1  # how far the share may be off, of the share
NO_LINK = "no link"
PLANS: dict[str, dict[str, Any]] = {
    "serial": {"schedule": "serial"},
    "2 parts": {"schedule": "pipelined", "parts": 2},
    "4 parts": {"schedule": "pipelined", "parts": 4},
    "8 parts": {"schedule": "pipelined", "parts": 8},
    "fused": {"schedule": "fused"},
    "automatic": {"schedule": "auto"},
}


@dataclass(frozen=True)
class Model:
    """A published model, and the gain in percent that CoC's page names for it."""

    hidden: int
    inner: int
    keys: int  # the width of keys, and of values
    layers: int
    vocabulary: int
    sequence: int
    is_llama: bool
    gain: float
    width: float  # the usual share of its widths


MODELS = {
    "bloom-7b": Model(4096, 16384, 4096, 30, 250880, 2048, False, 3.20, 1 / 8),
    "bloom-176b": Model(14336, 57344, 14336, 70, 250880, 2048, False, 5.47, 1 / 16),
    "llama2-70b": Model(8192, 28672, 1024, 80, 32000, 4096, True, 7.85, 1 / 8),
}


def sizes(model: Model, width: float) -> tuple[int, int]:
    """Return the tokens of a sequence, and the vocabulary, at this share of the widths.

    Attention has its share of a step if the sequence shrinks with the width, and the head if the
    vocabulary shrinks with the width and with the layers.
    """
    share = width * LAYERS / model.layers
    return round(model.sequence * width), 128 * max(1, round(model.vocabulary * share / 128))


def texts(rows: int, sequence: int, vocabulary: int) -> torch.Tensor:
    """Return random texts that begin again at their end, as a script's data can do too."""
    random = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(vocabulary, (rows, sequence), generator=random)
    return torch.cat((tokens, tokens[:, :1]), dim=1)


def make_model(model: Model, width: float, sequence: int, vocabulary: int) -> GPTModel:
    """Return the model at this share of its widths, on all ranks from the same seed."""
    hidden, ranks = round(model.hidden * width), dist.get_world_size()
    torch.manual_seed(SEED)
    llama: dict[str, Any] = {
        "normalization": "RMSNorm",
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
    }
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=hidden,
        ffn_hidden_size=round(model.inner * width),
        num_attention_heads=hidden // HEAD,
        num_query_groups=max(ranks, round(model.keys * width) // HEAD),
        kv_channels=HEAD,
        add_bias_linear=not model.is_llama,
        tensor_model_parallel_size=ranks,
        sequence_parallel=True,
        use_cpu_initialization=True,
        params_dtype=torch.bfloat16,
        bf16=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        **(llama if model.is_llama else {}),
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(normalization=config.normalization),
        vocab_size=vocabulary,
        max_sequence_length=sequence,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=not model.is_llama,
    )


class Contender:
    """A model that is trained in one plan, over the link at which it is made.

    Its first step connects the ranks, and prepares; it is made with that step.
    """

    def __init__(self, options: argparse.Namespace, how: dict[str, Any]) -> None:
        model = MODELS[options.model]
        self.how = how
        self.group = parallel_state.get_tensor_model_parallel_group()
        self.sequence, vocabulary = sizes(model, options.width)
        self.model = make_model(model, options.width, self.sequence, vocabulary)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        rows = max(1, options.tokens // self.sequence)
        self.tokens = texts(rows, self.sequence, vocabulary)
        self.positions = torch.arange(self.sequence).expand(rows, -1)
        self.later = torch.triu(torch.ones(self.sequence, self.sequence, dtype=torch.bool), 1)[
            None, None
        ]
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.step()

    def step(self) -> None:
        """Train one step, and keep its loss and the seconds of the slowest rank."""
        with plait.megatron.enabled(wire="bf16", **self.how):
            dist.barrier()
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            out = self.model(
                self.tokens[:, :-1], self.positions, self.later, labels=self.tokens[:, 1:]
            )
            loss = out.float().mean()
            loss.backward()
            # With sequence parallelism ranks add up the gradients of what they all have.
            for parameter in self.model.parameters():
                if getattr(parameter, "sequence_parallel", False) and parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
            self.optimizer.step()
            spent = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        self.seconds.append(spent.item())
        self.losses.append(loss.item())

    def median(self) -> float:
        """Return the seconds of a step, without the first, which prepares."""
        return statistics.median(self.seconds[1:])


def over(link: str | None) -> None:
    """Make a new group of all ranks, whose layers communicate over this link."""
    os.environ.pop("PLAIT_LINK", None)
    if link is not None:
        os.environ["PLAIT_LINK"] = link
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    model_parallel_cuda_manual_seed(SEED)


def in_turns(contenders: list[Contender], rounds: int) -> None:
    """Let all train so many steps, in alternating order."""
    for turn in range(rounds):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            contender.step()


def find_link(options: argparse.Namespace, alone: Contender) -> str:
    """Return a link over which communication is about the wanted share of the serial step."""
    wanted = options.share / (1 - options.share)
    alone.step()
    hidden = MODELS[options.model].hidden * options.width
    # Some ten gathers and sums a layer, of bf16, of which a rank sends a half.
    rate = 10 * LAYERS * options.tokens * hidden / (wanted * alone.seconds[-1])
    for _ in range(5):
        link = agreed(f"{rate * 8e-9:.3g}gbit,5us")
        over(link)
        serial = Contender(options, PLANS["serial"])
        begin = len(alone.seconds)
        in_turns([alone, serial], 3)
        ratio = serial.median() / statistics.median(alone.seconds[begin:]) - 1
        if abs(ratio - wanted) <= CLOSE / 2 * wanted:
            break
        rate *= min(max(ratio / wanted, 0.3), 3)
    return link


def agreed(text: str) -> str:
    """Return what rank 0 says."""
    said = [text]
    dist.broadcast_object_list(said)
    return said[0]


def document(options: argparse.Namespace, link: str, found: dict[str, Contender]) -> dict[str, Any]:
    """Return the figures as bench/report.py reads them."""
    alone, serial = found.pop(NO_LINK).median(), found["serial"].median()
    share, allowed = 1 - alone / serial, serial / alone - 1
    shown = f"{100 * share:.1f} %"
    values: dict[str, Any] = {
        "link": link,
        "communication": shown
        if abs(share - options.share) <= CLOSE * options.share
        else f"**{shown}**",
        "serial step, ms": 1e3 * serial,
        "published": f"{MODELS[options.model].gain:.2f} %",
        "allowed": allowed,
    }
    for name in itertools.islice(found, 1, None):
        seconds = found[name].median()
        is_possible = seconds > (1 - NOISE) * alone
        values[name] = serial / seconds - 1 if is_possible else "**disturbed, repeat**"
    what = {
        "model": options.model,
        "widths x": f"{options.width:.4g}",
        "wanted share": f"{options.share:.3f}",
    }
    unit = {name: "%" for name in ("allowed", *found)}
    return {
        "what": options.model,
        "conditions": {
            **conditions.now(),
            "ranks": dist.get_world_size(),
            "blocks": LAYERS,
            "tokens": options.tokens,
            "dtype": "bf16",
            "command": "./do bench models",
        },
        "rows": [{"table": TABLE, "what": what, "values": values, "unit": unit}],
        "bars": [],
    }


def main() -> None:
    """Measure one model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument(
        "--share", type=float, required=True, help="of communication in the serial step"
    )
    parser.add_argument("--link", help="this link, instead of one that gives the share")
    parser.add_argument("--width", type=float, help="of the model's widths")
    parser.add_argument("--tokens", type=int, default=2048, help="of a step")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each plan")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    options.width = options.width or MODELS[options.model].width
    torch.set_num_threads(1)
    plait.megatron.stand_in_for_cuda()  # where there is none
    dist.init_process_group("gloo")

    over(None)
    alone = Contender(options, PLANS["serial"])
    link = options.link or find_link(options, alone)
    over(None)
    found = {NO_LINK: Contender(options, PLANS["serial"])}
    over(link)
    found |= {name: Contender(options, how) for name, how in PLANS.items()}
    in_turns(list(found.values()), options.rounds)
    losses = {tuple(contender.losses) for contender in found.values()}
    if dist.get_rank() == 0:
        print("losses:", *(f"{loss:.6f}" for loss in found["serial"].losses))
        report.write(options.json, document(options, link, found))
    dist.destroy_process_group()
    if len(losses) != 1:
        sys.exit(f"{options.model}: the losses of plans differ: {losses}")


if __name__ == "__main__":
    main()
