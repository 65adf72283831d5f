"""The backend "plait" on two hosts: network namespaces that are joined by a cable."""

from pathlib import Path

import pytest
from hosts import SHOW_PLANS, Hosts, expect_automatic

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
import plait.torch

dist.init_process_group("plait", timeout=timedelta(seconds=60))
x = torch.full((5,), dist.get_rank() + 1.5)
dist.all_reduce(x)
parts = [torch.empty(3, dtype=torch.int64) for _ in range(2)]
dist.all_gather(parts, torch.arange(3) + 10 * dist.get_rank())
most = torch.tensor([dist.get_rank()])
dist.all_reduce(most, dist.ReduceOp.MAX)
dist.barrier()
linear = plait.torch.RowParallelLinear.from_linear(torch.nn.Linear(8, 4))
y = linear(torch.ones(2, linear.weight.shape[1]))
said = (plait.torch.communicator().transport, x[4].item(), parts[1][2].item(), most.item(),
        tuple(y.shape))
# In one write: the ranks share a pipe.
sys.stdout.write(" ".join(map(str, said)) + chr(10))
dist.destroy_process_group()
"""


def test_ranks_of_two_hosts_meet_over_tcp(hosts: Hosts) -> None:
    ranks = hosts.run(PROGRAM)
    assert [text.splitlines()[-1] for text in ranks.texts] == 2 * ["tcp 4.0 12 1 (2, 4)"]


PLANS = """
import os
import sys
from pathlib import Path
import torch
import torch.distributed as dist
import plait.torch

dist.init_process_group("plait")
torch.set_num_threads(1)
x, w = torch.randn(256, 512).bfloat16(), torch.randn(512, 512).bfloat16()
# The first rank stores a clear decision in the call that decides.
plans = Path(os.environ["XDG_CACHE_HOME"], "plait", "plans")
with torch.no_grad():
    for _ in range(48):
        y = plait.torch.matmul_all_reduce(x, w)
        report = plait.torch.report()
        reasons = [row.reason.split(";")[0] for row in report.rows]
        if "plans are being tried" in reasons:
            assert set(reasons) == {"plans are being tried"}, report
            assert dist.get_rank() != 0 or not plans.exists(), report
        else:
            assert [row.is_in_use for row in report.rows] == [one != "was tried" for one in reasons]
            assert sum(row.is_in_use for row in report.rows) == 1, report
            assert str(report).count(" *;") == 1, report
for row in report.rows:
    assert row.wire == "bf16", report
    assert row.hidden is not None or "; " in row.reason, report  # why the plan, and why "-"
said = [f"{row.plan.split()[0]}; {row.hidden}; {row.reason}" for row in report.rows]
(context,) = plait.torch.context._contexts
said += [row.problem for row in context.plans.rows()]
sys.stdout.write("".join(f"{dist.get_rank()} {line}\\n" for line in said))
dist.destroy_process_group()
"""


def test_plans_suit_the_link_though_nothing_was_tuned(hosts: Hosts, tmp_path: Path) -> None:
    for attempt in range(3):  # other programs may disturb the trials so much that they tell nothing
        home = tmp_path / str(attempt)
        ranks = hosts.run(PLANS, "1gbit", XDG_CACHE_HOME=str(home))
        if "; measured: " in ranks.text:
            break
    for rank, text in zip(("0 ", "1 "), ranks.texts, strict=True):
        said = [line[2:] for line in text.splitlines() if line.startswith(rank)]
        rows = [line for line in said if not line.startswith("op=")]
        problems = [line for line in said if line.startswith("op=")]
        # Some plans were tried, and one of them was decided upon by measuring.
        assert {"serial", "fused"} <= {row.split(";")[0] for row in rows}, said
        assert any("; measured: " in row for row in rows), said
        # Sums are as wide as the operands, and plans are those of the network.
        assert all(" wire=bf16 " in one and " hosts=2 " in one for one in problems), said
    stored = {one.name: one.read_text() for one in (home / "plait").iterdir()}
    if "plans" in stored:  # other programs may have disturbed the trials
        assert "wire=bf16 ranks=2 hosts=2" in stored["plans"], stored
    assert "2 ranks on 2 hosts, tcp: 10.77.0.1 (v0) to 10.77.0.2 | " in stored["plans.links"], (
        stored
    )


# The kernel takes little at a time here.
SMALL_BUFFERS = """
import signal
import sys
from pathlib import Path
import numpy as np
import torch.distributed as dist
import plait
import plait.torch

for one in ("tcp_wmem", "tcp_rmem"):
    Path("/proc/sys/net/ipv4", one).write_text("4096 16384 65536")
dist.init_process_group("gloo")
comm = plait.torch.communicator()
x = np.full(1 << 18, 7 * (dist.get_rank() == 0), dtype=np.float32)
"""

BLOCKING = "plait.broadcast(x, 0, comm)"
POLLED = """
pending = plait.start_broadcast(x, 0, comm)
while not pending.done():
    pass
"""
# The second is sent only when the first is done: a peer need not receive it meanwhile.
POLLED_OF_TWO = """
pending = plait.start_broadcast(x, 0, comm)
more = np.zeros(1 << 18, dtype=np.float32)
second = plait.start_broadcast(more, 0, comm)
while not pending.done():
    pass
"""
LEAVING = """
dist.barrier()  # gloo's: plait is not called in it
sys.stdout.write(f"{x[-1]}\\n")
"""


@pytest.mark.parametrize("call", [BLOCKING, POLLED, POLLED_OF_TWO], ids=["blocks", "polls", "two"])
def test_a_call_leaves_nothing_unsent_behind(hosts: Hosts, call: str) -> None:
    # Frames that the kernel had not taken when the first rank's call ended would stay in that
    # process while it waits for the second rank in another library.
    ranks = hosts.run(SMALL_BUFFERS + call + LEAVING, "20mbit")
    assert [text.splitlines()[-1] for text in ranks.texts] == 2 * ["7.0"]


INTERRUPTED = """
def interrupt(*_):
    raise KeyboardInterrupt

if dist.get_rank() == 0:
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        CALL
        said = "it ended"
    except KeyboardInterrupt:
        said = "interrupted"
    signal.setitimer(signal.ITIMER_REAL, 0)
    dist.barrier()
else:
    dist.barrier()  # takes nothing from the first rank until that one has ended its call
    try:
        plait.broadcast(x, 0, comm)
        plait.barrier(comm)
        said = "it ended"
    except plait.Error as error:
        said = str(error)
sys.stdout.write(f"{dist.get_rank()} {said}\\n")
"""


def test_an_interrupt_ends_the_end_of_a_call(hosts: Hosts) -> None:
    # The call has done its part, and waits for the kernel alone: no rank is named for which it
    # would wait. Were it not to end, the second rank would never come.
    program = SMALL_BUFFERS.replace("1 << 18", "1 << 16") + INTERRUPTED.replace("CALL", BLOCKING)
    first, second = (text.splitlines()[-1] for text in hosts.run(program, "20mbit").texts)
    assert first == "0 interrupted"
    assert "rank 0 was interrupted" in second
    assert "rank 0 waits" not in second


# Programs that know nothing of plans, each by another door of plait.
MLP = """
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import plait.torch

torch.set_num_threads(1)
dist.init_process_group("gloo")
x = torch.randn(64, 128).bfloat16()

def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(3)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).bfloat16()
"""
TRANSFORMERS = """
import plait.transformers
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

folder = os.environ["MODEL"]
if dist.get_rank() == 0:
    llama().save_pretrained(folder)
dist.barrier()
plait.transformers.enable()
how = DistributedConfig(tp_size=2)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16", distributed_config=how)
with torch.no_grad():
    for _ in range(6):
        model(torch.arange(64)[None])
"""
STYLES = """
from plait.torch.dtensor import ColwiseParallel, RowwiseParallel, parallelize_module

mlp = llama().model.layers[0].mlp
styles = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel()}
parallelize_module(
    mlp, init_device_mesh("cpu", (2,)), {**styles, "down_proj": RowwiseParallel()}
)
with torch.no_grad():
    for _ in range(6):
        mlp(x)
"""
COMPILER = """
import torch.distributed._functional_collectives as functional
from plait.torch.compiler import Pass

w = torch.randn(96, 128).bfloat16()

def program(x, w):
    return functional.all_reduce(x @ w.t(), "sum", dist.group.WORLD) + 1

compiled = torch.compile(program, options={"post_grad_custom_post_pass": Pass()})
with torch.no_grad():
    for _ in range(6):
        compiled(x, w)
"""
MEGATRON = """
import plait.megatron
plait.megatron.enable(stand_ins=True)
from megatron.core import parallel_state
from megatron.core.tensor_parallel import RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig

parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
config = TransformerConfig(
    num_layers=1, hidden_size=128, num_attention_heads=4, params_dtype=torch.bfloat16,
    use_cpu_initialization=True,
)
layer = RowParallelLinear(
    256, 128, config=config, init_method=torch.nn.init.ones_, bias=False,
    input_is_parallel=True, skip_bias_add=False,
)
with torch.no_grad():
    for _ in range(6):
        layer(x[:, None])
"""
DOORS = {
    "transformers": TRANSFORMERS,
    "styles": STYLES,
    "compiler": COMPILER,
    "megatron": MEGATRON,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_has_automatic_plans(hosts: Hosts, door: str, tmp_path: Path) -> None:
    ranks = hosts.run(
        MLP + DOORS[door] + SHOW_PLANS,
        XDG_CACHE_HOME=str(tmp_path),
        MODEL=str(tmp_path),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
    expect_automatic(ranks, "matmul_all_reduce")
