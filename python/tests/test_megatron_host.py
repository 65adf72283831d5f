"""The stand-ins for torch.cuda: where they are put in, and which of Megatron's options they change.

python/tests/with_megatron_lm trains with them.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from launching import Launcher

from plait.megatron.host import Refused, options

Python = Callable[..., str]


@pytest.fixture
def python(tmp_path: Path, together: Launcher) -> Python:
    """Give what runs a program and returns what it has printed. It must end well."""

    def run(program: str, *arguments: str, **more: Any) -> str:
        script = tmp_path / "program.py"
        script.write_text(program, encoding="utf-8")
        done = together.start(1, str(script), *arguments, **more)
        assert done.codes == [0], done.text
        said: str = done.text
        return said

    return run


def test_what_is_only_faster_is_turned_off_and_named() -> None:
    args = Namespace(transformer_impl="transformer_engine", apply_rope_fusion=True, fp8=None)
    turned = options.adjust(args, ["--bf16"])
    assert turned == ["--transformer-impl local", "--no-rope-fusion"]
    assert args == Namespace(transformer_impl="local", apply_rope_fusion=False, fp8=None)
    assert options.adjust(args, ["--bf16"]) == []


@pytest.mark.parametrize("row", options.REFUSED, ids=lambda row: str(row[0]))
def test_what_needs_a_gpu_is_refused(row: tuple[str, tuple[str, ...] | None, str, str]) -> None:
    name, values, option, reason = row
    for value in values or (True,):
        with pytest.raises(Refused, match=rf"no CUDA device is here, and {option} is on: {reason}"):
            options.adjust(Namespace(**{name: value}), [])
    options.adjust(Namespace(**{name: "unfused" if values else False}), [])


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (Namespace(context_parallel_size=2), []),
        (Namespace(profile=True), []),
        (Namespace(transformer_impl="transformer_engine"), ["--transformer-impl"]),
        (Namespace(transformer_impl="transformer_engine"), ["--transformer-impl=x"]),
    ],
    ids=str,
)
def test_more_that_needs_a_gpu(args: Namespace, given: list[str]) -> None:
    with pytest.raises(Refused, match="no CUDA device is here"):
        options.adjust(args, given)


def test_tokens_that_ranks_cannot_share_equally_are_refused() -> None:
    args = Namespace(sequence_parallel=True, tensor_model_parallel_size=2, seq_length=63)
    with pytest.raises(Refused, match="63 tokens can't be shared equally by 2 tensor-parallel"):
        options.adjust(args, [])
    args.seq_length = 64
    options.adjust(args, [])


def test_a_program_with_a_gpu_is_not_changed(python: Python) -> None:
    done = python(
        "import torch; torch.cuda.device_count = lambda: 1\n"
        "import plait.megatron\n"
        "before = dict(vars(torch.cuda)), torch.distributed.new_group\n"
        "assert not plait.megatron.stand_in_for_cuda()\n"
        "plait.megatron.enable(stand_ins=True)\n"
        "assert before == (dict(vars(torch.cuda)), torch.distributed.new_group)\n"
        "assert torch.zeros(1).type() == 'torch.FloatTensor'\n",
    )
    assert "stands in" not in done


def test_a_program_of_ones_own_asks_for_them(python: Python) -> None:
    done = python(
        "import torch, plait.megatron\n"
        "before = dict(vars(torch.cuda))\n"
        "plait.megatron.enable()\n"
        "assert before == dict(vars(torch.cuda))\n"
        "plait.megatron.disable()\n"
        "plait.megatron.enable(stand_ins=True)\n"
        "assert torch.cuda.is_available() and torch.cuda.current_device() == 'cpu'\n"
        "x = torch.zeros(2, device='cuda:0').to('cuda').cuda().pin_memory()\n"
        "assert x.device.type == 'cpu' and torch.empty(1, device='meta').is_meta\n"
        "assert x.type() == 'torch.cuda.FloatTensor' and x.type(torch.int64).dtype == torch.int64\n"
        "assert x.new_zeros(1, device='cuda').device == torch.rand_like(x, device=0).device\n"
        "assert torch.tensor([1], pin_memory=True, device=torch.device('cuda', 1)).is_cpu\n"
        "with torch.device('cuda'):\n"
        "    assert torch.arange(2).is_cpu and torch.fft.fftfreq(2, device='cuda').is_cpu\n"
        "with torch.device('meta'):\n"
        "    assert torch.empty(2).is_meta and torch.empty(2, device='cuda').is_cpu\n"
        "state = torch.cuda.get_rng_state(); drawn = torch.rand(3)\n"
        "torch.cuda.set_rng_state(state)\n"
        "assert torch.equal(drawn, torch.rand(3, device=torch.device('cuda')))\n"
        "begin, end = torch.cuda.Event(), torch.cuda.Event()\n"
        "begin.record(); end.record(torch.cuda.current_stream())\n"
        "assert 0 <= begin.elapsed_time(end) and torch.cuda.max_memory_allocated() > 1 << 20\n",
    )
    assert done.count("the CPU stands in for one") == 1


def test_what_makes_no_tensor_is_left_alone(python: Python) -> None:
    """A step makes thousands of calls: no stand-in may see those that take no device."""
    python(
        "import torch\n"
        "owners = torch, torch.nn.functional, torch.Tensor\n"
        "before = [dict(vars(owner)) for owner in owners]\n"
        "import plait.megatron\n"
        "plait.megatron.stand_in_for_cuda()\n"
        "assert torch._C._len_torch_function_stack() == 0\n"
        "changed = {name for owner, was in zip(owners, before)\n"
        "           for name, value in vars(owner).items() if was.get(name) is not value}\n"
        "assert {'zeros', 'tensor', 'rand_like', 'new_empty', 'to', 'cuda'} <= changed\n"
        "assert not changed & {'add', 'matmul', 'relu', 'linear', 'view', 'detach', 'cat'}\n",
    )


def test_torchscript_knows_the_stand_ins(python: Python) -> None:
    """Some of torch's own modules are scripts, and make tensors."""
    python(
        "import torch\n"
        "import plait.megatron\n"
        "plait.megatron.stand_in_for_cuda()\n"
        "import torch.distributed.optim\n"
        "@torch.jit.script\n"
        "def first(n: int):\n"
        "    return torch.zeros(n) + torch.arange(n)\n"
        "assert first(3).tolist() == [0, 1, 2]\n",
    )


def test_every_way_to_name_a_device_means_the_cpu(python: Python) -> None:
    python(
        "import torch\n"
        "import plait.megatron\n"
        "plait.megatron.stand_in_for_cuda()\n"
        "x = torch.ones(2)\n"
        "for one in (x.to(0), x.to(device=0), x.to('cuda:0', torch.float64), x.cuda(),\n"
        "            x.to(torch.device('cuda')), torch.zeros(2, device=0), x.to(torch.bfloat16),\n"
        "            torch.normal(0.0, 1.0, (2,), device='cuda:0'),\n"
        "            x.new_zeros(2, device='cuda'), torch.nn.Linear(2, 2).to(0).weight,\n"
        "            torch.nn.Linear(2, 2).to(device=0).weight):\n"
        "    assert one.device.type == 'cpu'\n"
        "assert x.to('cuda:0', torch.float64).dtype == torch.float64\n",
    )


def test_rare_calls_find_a_stand_in(python: Python) -> None:
    """Logs of slow ranks, streams of experts, and groups that are named by position."""
    done = python(
        "import warnings; warnings.simplefilter('always')\n"
        "import datetime, os, torch, torch.distributed as dist\n"
        "import plait.megatron\n"
        "plait.megatron.stand_in_for_cuda()\n"
        "cuda = torch.cuda\n"
        "assert cuda.temperature() == cuda.power_draw() == cuda.utilization() == 0\n"
        "assert cuda.clock_rate() == 0 and cuda.Stream.priority_range() == (0, 0)\n"
        "torch.ones(1).record_stream(cuda.current_stream())\n"
        "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
        "dist.init_process_group('nccl', rank=0, world_size=1, store=dist.HashStore())\n"
        "group = dist.new_group([0], datetime.timedelta(minutes=1), 'nccl')\n"
        "assert dist.get_backend(group) == 'gloo'\n"
        "loader = torch.utils.data.DataLoader(torch.arange(2), pin_memory=True)\n"
        "assert [int(one) for one in loader] == [0, 1]\n"
        "dist.destroy_process_group()\n",
    )
    assert "pin_memory" not in done


def test_loaders_have_seeds_of_the_program(python: Python) -> None:
    program = (
        "import torch, plait.megatron\n"
        "plait.megatron.stand_in_for_cuda()\n"
        "torch.manual_seed({seed})\n"
        "print(iter(torch.utils.data.DataLoader(torch.arange(2)))._base_seed)\n"
    )
    found = [python(program.format(seed=seed)).splitlines()[-1] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0].isdigit()


@pytest.mark.parametrize("where", ["nowhere", "before", "behind"])
def test_the_command_can_leave_torch_as_it_is(where: str, python: Python) -> None:
    program = "import sys, torch; print(torch.cuda.is_available(), sys.argv[1:])"
    option = "--no-stand-ins"
    behind = [option] if where == "behind" else []
    before = [option] if where == "before" else []
    said = python(program, *behind, "--lr", served=True, options=before)
    assert f"{where == 'nowhere'} ['--lr']" in said.splitlines()
