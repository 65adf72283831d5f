"""Whole programs as a user starts them: what they print, and that nothing is left at their end."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher, Run, completed, ended

import plait

MEGATRON = importlib.util.find_spec("megatron") is not None


def torchrun(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done: subprocess.CompletedProcess[str] = ended(*launch, *arguments, **variables)
    return done


Ranks = Callable[..., Run]


@pytest.fixture
def ranks(tmp_path: Path, together: Launcher) -> Ranks:
    """Give what runs a program on several ranks, as torchrun would. They must end well."""

    def run(count: int, program: str, *arguments: str, **more: Any) -> Run:
        script = tmp_path / "program.py"
        script.write_text(program)
        done = together.start(count, str(script), *arguments, **more)
        assert not any(done.codes), done.text
        return done

    return run


LEAVES_ALL = """
import sys
import torch, torch.distributed as dist
import plait._native, plait.torch as pt
plait._native._warn_of_leaks(True)
dist.init_process_group(sys.argv[1])
other = dist.new_group(backend="gloo")
up = pt.ColumnParallelLinear.from_linear(torch.nn.Linear(8, 8), group=other)
frozen = pt.RowParallelLinear.from_linear(torch.nn.Linear(8, 8)).requires_grad_(False)
x = torch.ones(4, 8, requires_grad=True)
y = up(x)
y.sum().backward(retain_graph=True)
frozen(y)
z = pt.matmul_all_reduce(x, torch.ones(3, 8))
comm = pt.communicator()
if len(sys.argv) > 2:
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["gloo", "plait"])
@pytest.mark.parametrize("end", [[], ["destroy"]], ids=["as it is", "destroyed"])
def test_nothing_is_left_at_the_end(ranks: Ranks, backend: str, end: list[str]) -> None:
    """Layers, graphs and packed weights that a program still has are no leak."""
    assert "leaked" not in ranks(2, LEAVES_ALL, backend, *end).text


BEGINS_TWICE = """
import torch, torch.distributed as dist
import plait.torch as pt
for value in (1.0, 2.0):
    dist.init_process_group("plait")
    y = pt.matmul_all_reduce(torch.full((2, 8), value), torch.ones(3, 8))
    x = torch.full((4,), value)
    dist.all_reduce(x)
    assert y[0, 0] == 16 * value and x[0] == 2 * value, (y, x)
    dist.destroy_process_group()
print("twice")
"""


@pytest.mark.long
def test_groups_may_begin_again(tmp_path: Path) -> None:
    """torchrun's store keeps what the first groups have left in it."""
    script = tmp_path / "program.py"
    script.write_text(BEGINS_TWICE)
    done = torchrun(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("twice") == 2


def alone(ranks: Ranks, program: str, *arguments: str) -> str:
    """Run a program as one process; return what it prints. Nothing is to go wrong on its way."""
    said: str = ranks(1, program, *arguments).text
    assert "Exception ignored" not in said
    return said


OLD_GRADIENT = """
import torch, torch.distributed as dist
import plait, plait.torch as pt
old = None
for _ in range(2):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.new_group()
    if old is not None:
        try:
            old.backward()
        except plait.Error as error:
            print(error)
    x = torch.ones(2, 8, requires_grad=True)
    old = pt.all_gather_matmul(x, torch.ones(3, 8), group=group).sum()
    dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_gradient_is_not_made_in_another_group_of_the_same_name(ranks: Ranks) -> None:
    assert "was destroyed between a call and its gradient" in alone(ranks, OLD_GRADIENT)


COLLECTED_ANYWHERE = """
import gc
import torch, torch.distributed as dist
import plait.torch as pt
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for k in range(1, 41):
    group = dist.new_group()
    pt.matmul_all_reduce(torch.ones(2, k), torch.ones(3, k), group=group)
    dist.destroy_process_group(group)
    cycle = [group]
    cycle.append(cycle)
    del group, cycle
    gc.disable()
    for _ in range(3):
        gc.enable()
        gc.set_threshold(k % 7 + 1)  # it collects in the midst of a report
        found = pt.report()
        gc.disable()
    assert sum(row.calls for row in found.rows) == k, found
print("counted")
"""


@pytest.mark.long
def test_groups_may_be_collected_while_a_report_is_made(ranks: Ranks) -> None:
    assert alone(ranks, COLLECTED_ANYWHERE) == "counted\n"


WITHOUT_PRIVATE_NAMES = """
import sys, types
import torch, torch.distributed, torch._library.custom_ops
if sys.argv[1] == "renamed":
    # torch's own modules know the new names.
    old = torch._library.autograd
    new = types.SimpleNamespace(**vars(old))
    torch._library.custom_ops.autograd = new
    torch.library._library = types.SimpleNamespace(**vars(torch._library) | {"autograd": new})
    del old.make_autograd_impl, old.Info
import plait.torch as pt
x, w = torch.randn(4, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True)
expected = torch.autograd.grad((x @ w.t()).square().sum(), (x, w))
for call in (pt.all_gather_matmul, lambda x, w: torch.ops.plait.all_gather_matmul(x, w, None, "")):
    out = call(x, w)
    found = torch.autograd.grad(out.square().sum(), (x, w))
    assert all(torch.allclose(*both, atol=1e-4) for both in zip(found, expected))
    print(out.grad_fn.name())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "by_torch_ops"),
    [("there", "all_gather_matmulBackward"), ("renamed", "GeneratedBackwardFor_plait_")],
)
def test_gradients_without_private_names_of_torch(
    ranks: Ranks, names: str, by_torch_ops: str
) -> None:
    """Calls by torch.ops go through torch's own kernel where another can't pass them on to it."""
    by_plait, by_name = alone(ranks, WITHOUT_PRIVATE_NAMES, names).split()
    assert by_plait == "all_gather_matmulBackward"
    assert by_name.startswith(by_torch_ops)


BEGINS = """
import torch, torch.distributed as dist
import plait, plait.torch as pt
comm = pt.init()
assert comm is pt.init() is pt.init("plait") is pt.communicator()
y = pt.matmul_all_reduce(torch.ones(2, 8), torch.ones(3, 8))
dist.all_reduce(torch.ones(1))
try:
    pt.init("gloo")
except plait.Error as error:
    print(f"{comm.world} {dist.get_backend()} {y[0, 0]:g} {error}\\n", end="", flush=True)
dist.destroy_process_group()
"""
ALONE = [sys.executable]
LAUNCHERS = {
    "alone": (1, ALONE),
    "plait run": (2, [sys.executable, "-m", "plait", "run", "-n", "2", "--", *ALONE]),
    "torchrun": (
        2,
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    ),
    "mpirun": (2, ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *ALONE]),
}


@pytest.mark.long
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_init_under_every_launcher(tmp_path: Path, launcher: str) -> None:
    world, command = LAUNCHERS[launcher]
    if shutil.which(command[0]) is None:
        pytest.skip("there is no mpirun here")
    script = tmp_path / "program.py"
    script.write_text(BEGINS)
    done = completed(*command, str(script))
    sentence = "the default process group has the backend 'plait', not 'gloo'"
    assert done.stdout.count(f"{world} plait {8 * world} plait.torch.init: {sentence}") == world


OVER_MPI = """
import sys
import numpy as np
import plait
with plait.Communicator.connect() as comm:
    x, w, y = (np.ones(shape, np.float32) for shape in ((2, 8), (3, 8), (2, 3)))
    plait.matmul_all_reduce(x, plait.WeightView(w, plait.WeightLayout.out_in), y, comm)
    plait.all_reduce(x, comm)
    sys.stdout.write(f"{comm.world} {comm.transport} {y[1, 2]:g} {x[1, 7]:g}" + chr(10))
"""


def test_the_transport_mpi_under_mpirun(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here")
    if not list((Path(plait.__file__).parent / "lib" / "plait").glob("libplait_mpi_*.so")):
        pytest.skip("the package has no plugin for MPI")
    script = tmp_path / "program.py"
    script.write_text(OVER_MPI)
    done = completed(*LAUNCHERS["mpirun"][1], script, PLAIT_TRANSPORT="mpi")
    assert sorted(done.stdout.splitlines()) == 2 * ["2 mpi 16 2"], done.stderr


USES_A_DESTROYED_GROUP = """
import torch, torch.distributed as dist
import plait, plait.torch as pt
dist.init_process_group("gloo")
x, w = torch.ones(4, 8, requires_grad=True), torch.ones(3, 8)
up = pt.ColumnParallelLinear.from_linear(torch.nn.Linear(8, 8))
y = up(x).sum()
pt.matmul_all_reduce(x, w)
dist.destroy_process_group()
c10d = pt.Options(engine="c10d")
for call in (
    lambda: up(x),
    lambda: pt.matmul_all_reduce(x, w),
    lambda: pt.communicator(),
    lambda: pt.row_parallel_linear(x, w, options=c10d),
):
    try:
        call()
    except plait.Error as error:
        print(error, flush=True)
"""


def test_a_group_that_was_destroyed(ranks: Ranks) -> None:
    """A program that had ranks is not one rank alone without them."""
    said = ranks(2, USES_A_DESTROYED_GROUP).text
    assert len(re.findall("was destroyed|there is no process group", said)) == 8


TRAINS = """
import sys
import torch
import torch.distributed as dist
torch.cuda.current_device = lambda: "cpu"
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
dist.init_process_group("gloo")
world = dist.get_world_size()
parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
config = TransformerConfig(num_layers=1, hidden_size=32, num_attention_heads=2,
                           tensor_model_parallel_size=world, sequence_parallel=True,
                           use_cpu_initialization=True, gradient_accumulation_fusion=False)
torch.manual_seed(1)
how = dict(config=config, init_method=torch.nn.init.xavier_normal_, skip_bias_add=False)
up = ColumnParallelLinear(32, 128, **how)
down = RowParallelLinear(128, 32, bias=True, input_is_parallel=True, **how)
parameters = [*up.parameters(), *down.parameters()]
optimizer = torch.optim.SGD(parameters, lr=float(sys.argv[1]))
x = torch.randn(16, 2, 32).chunk(world)[dist.get_rank()]
for _ in range(5):
    optimizer.zero_grad()
    out, _ = down(torch.relu(up(x)[0]))
    loss = (out - x.roll(1, -1)).square().mean()
    loss.backward()
    dist.all_reduce(down.bias.grad)
    optimizer.step()
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(f"loss {loss.item() / world:.9f}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.skipif(not MEGATRON, reason="megatron-core is not installed")
def test_the_environment_alone_serves_a_training_script(ranks: Ranks) -> None:
    """Nothing of the script is edited, nor is an option given to it: the losses are the same."""
    found = []
    for served, variables in ((False, {}), (True, {"COC_PARALLEL_NUM": "2"})):
        said = ranks(2, TRAINS, "0.5", served=served, environment=variables).text
        found.append([float(one) for one in re.findall(r"loss (\S+)", said)])
        assert len(found[-1]) == 5
    assert "ColumnParallelLinear: 5 calls served by plait" in said
    assert "RowParallelLinear: 5 calls served by plait" in said
    assert re.search(r"matmul_reduce_scatter .* pipelined parts=2", said), said
    theirs, ours = found
    assert theirs[-1] < 0.9 * theirs[0], f"nothing was learned: {theirs}"
    assert max(abs(a - b) / a for a, b in zip(theirs, ours, strict=True)) < 1e-5


@pytest.mark.long
@pytest.mark.skipif(not MEGATRON, reason="megatron-core is not installed")
def test_megatron_scripts_run_unchanged(tmp_path: Path, together: Launcher) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import sys
import torch
torch.cuda.current_device = lambda: "cpu"
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
torch.distributed.init_process_group("gloo")
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=2,
                           tensor_model_parallel_size=2, use_cpu_initialization=True)
layer = ColumnParallelLinear(8, 8, config=config, init_method=torch.nn.init.ones_)
out, _ = layer(torch.ones(4, 1, 8))
print(f"{sys.argv[1:]} {__name__} {out[0, 0, 0].item()}\\n", end="", flush=True)
sys.exit(0)
"""
    )
    done = torchrun("-m", "plait.megatron", "--coc-parallel-num", 2, script, "--lr", "0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['--lr', '0.1'] __main__ 8.0") == 2
    assert "ColumnParallelLinear: 1 call served by plait" in done.stderr
    for program, options, sentence in (
        (script, ["--use-ascend-mc2"], "--use-ascend-mc2 replaces"),
        ("nothing.py", [], "there is no script nothing.py"),
    ):
        refused = together.start(1, str(program), served=True, options=options)
        assert refused.codes == [2]
        assert sentence in refused.text
    done = ended(sys.executable, "-m", "plait.megatron")
    assert done.returncode == 2
    assert "the following arguments are required: script\n" in done.stderr
