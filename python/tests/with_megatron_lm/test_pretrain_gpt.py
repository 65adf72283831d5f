"""pretrain_gpt.py on a host without CUDA: the losses of Megatron's own layers over gloo.

With PLAIT_TEST_BRIEFLY, there is one run of four steps.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from launching import completed
from pretraining import SMALL, Scripts

BENCH = Path(__file__).parents[3] / "bench" / "models"
BESIDE = Path(__file__).parents[3].parent / "shared" / "megatron-lm"
TP2 = "--tensor-model-parallel-size 2"
UNFUSED = "--no-gradient-accumulation-fusion"
LLAMA = """--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --group-query-attention --num-query-groups 4 --untie-embeddings-and-output-weights"""
BLOOM = "--position-embedding-type none"  # biases, GELU and a tied head are Megatron's defaults
EXPERTS = "--num-experts 4 --moe-router-topk 2 --disable-bias-linear --moe-aux-loss-coeff 1e-2"
EACH_LAYER = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
STEPS = 6

thorough = pytest.mark.skipif(
    "PLAIT_TEST_BRIEFLY" in os.environ,
    reason="a whole model takes its time: ./do test all",
)


@pytest.fixture(scope="session")
def folder() -> Path:
    """Give the folder of Megatron-LM's scripts."""
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    found = Path(os.environ.get("PLAIT_MEGATRON_LM", BESIDE))
    if not (found / "pretrain_gpt.py").is_file():
        pytest.skip("Megatron-LM's scripts are not here: PLAIT_MEGATRON_LM names their folder")
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, which must be a good one."""
    done: subprocess.CompletedProcess[str]
    done = completed(sys.executable, *arguments, PYTHONWARNINGS="ignore")
    return done


@pytest.fixture(scope="session")
def data(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give options that name an indexed dataset: Python's own library, by a tokenizer of it."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    made = tmp_path_factory.mktemp("text")
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]
    learned = ByteLevelBPETokenizer()
    learned.train([str(file) for file in files], 1000, special_tokens=["<end>"])
    PreTrainedTokenizerFast(tokenizer_object=learned._tokenizer, eos_token="<end>").save_pretrained(
        made / "tokenizer"
    )
    lines = [json.dumps({"text": file.read_text(encoding="utf-8")}) for file in files]
    (made / "text.json").write_text("\n".join(lines))
    tokenizer = ["--tokenizer-type", "HuggingFaceTokenizer"]
    tokenizer += ["--tokenizer-model", str(made / "tokenizer")]
    script = folder / "tools" / "preprocess_data.py"
    arguments = ["--input", str(made / "text.json"), "--output-prefix", str(made / "text")]
    arguments += ["--append-eod", "--workers", "1"]
    run("-m", "plait.megatron", str(script), *arguments, *tokenizer)
    paths = ["--data-path", str(made / "text_text_document")]
    return [*paths, "--data-cache-path", str(made / "cache"), *tokenizer]


@pytest.fixture(scope="session")
def scripts(
    folder: Path, data: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scripts]:
    """Give what runs the script."""
    started = Scripts(folder, data, tmp_path_factory.mktemp("outputs"))
    yield started
    started.end()


def test_four_steps_by_torchrun(folder: Path, data: list[str]) -> None:
    """The README's line: with nothing but sizes, as the script is written for GPUs."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = ["-m", "plait.megatron", str(folder / "pretrain_gpt.py"), *SMALL.split(), *data]
    done = run(*launch, *program, *TP2.split(), "--train-iters", "4")
    said = done.stdout + done.stderr  # Megatron logs to stdout
    assert said.count("torch finds no CUDA device: the CPU stands in for one") == 1
    turned = "turns off what needs one, as these options do: --transformer-impl local"
    assert said.count(f"no CUDA device is here: plait {turned}") == 1
    losses = [float(one) for one in re.findall(r"lm loss: (\S+)", done.stdout)]
    assert len(losses) == 4
    assert losses[-1] < losses[0] - 0.1
    assert "RowParallelLinear: 32 calls served by plait" in done.stderr


@dataclass
class Case:
    name: str
    arguments: str
    ranks: int = 2
    served: bool = True
    options: str = ""  # CoC's, which only plait takes

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("f32", TP2),
    Case("sequence parallel", f"{TP2} --sequence-parallel"),
    Case("bf16", f"{TP2} --bf16"),
    Case("bf16, sequence parallel", f"{TP2} --bf16 --sequence-parallel"),
    Case("TP 4", "--tensor-model-parallel-size 4", 4),
    Case("DP x TP", f"{TP2} --global-batch-size 8", 4),
    Case(
        "distributed optimizer",
        f"{TP2} --global-batch-size 8 --use-distributed-optimizer --bf16",
        4,
    ),
    Case("recomputed", f"{TP2} {EACH_LAYER}"),
    Case("selectively recomputed", f"{TP2} --recompute-granularity selective"),
    Case("micro-batches", f"{TP2} --global-batch-size 8"),
    Case("micro-batches, unfused", f"{TP2} --global-batch-size 8 {UNFUSED}"),
    Case("LLaMA", f"{TP2} {LLAMA} --sequence-parallel"),
    Case("BLOOM without ALiBi", f"{TP2} {BLOOM} --sequence-parallel"),
    Case("CoC, 4 parts", TP2, options="--use-ascend-coc --coc-parallel-num 4"),
    Case("PP 2", "--pipeline-model-parallel-size 2", served=False),
    Case("PP 2 x TP 2", f"{TP2} --pipeline-model-parallel-size 2", 4),
    Case(
        "experts, allgather",
        f"{TP2} {EXPERTS} --sequence-parallel --moe-token-dispatcher-type allgather",
    ),
    Case(
        "experts, alltoall",
        f"{TP2} {EXPERTS} --sequence-parallel --moe-token-dispatcher-type alltoall "
        "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1",
    ),
    Case("evaluation", f"{TP2} --eval-iters 1 --eval-interval 3"),
]


@thorough
@pytest.mark.parametrize("case", CASES, ids=str)
def test_losses(scripts: Scripts, case: Case) -> None:
    """Five digits in f32, and three in bf16."""
    steps = f"{case.arguments} --train-iters {STEPS}"
    theirs = scripts.of_megatron(case.ranks, f"{steps.replace(UNFUSED, '')} {UNFUSED}")
    ours = scripts.run(case.ranks, f"{steps} {case.options}")
    assert len(theirs.losses) == len(ours.losses) == STEPS
    assert theirs.losses[-1] < theirs.losses[0] - 0.1
    bound = 1e-3 if "--bf16" in steps else 1e-5
    off = max(abs(a - b) / a for a, b in zip(theirs.losses, ours.losses, strict=True))
    assert off < bound, f"{theirs.losses}, with plait {ours.losses}"
    assert ("calls served by plait" in ours.text) == case.served
    if "--eval-iters 1" in steps:
        found: list[list[float]] = [
            [float(loss) for loss in re.findall(r"validation loss at .* value: (\S+)", one.text)]
            for one in (theirs, ours)
        ]
        assert found[0]
        assert found[1] == pytest.approx(found[0], rel=bound)


def weights(saved: Path) -> dict[str, Any]:
    """Return what each rank has saved of its model."""
    return {
        f"{file.parent.name} {name}": value
        for file in sorted(saved.glob("iter_*/*/model_optim_rng.pt"))
        for name, value in torch.load(file, weights_only=False)["model"].items()
        if isinstance(value, torch.Tensor)
    }


@thorough
@pytest.mark.parametrize(("dtype", "spellings"), [("", 5), ("--bf16", 3)], ids=["f32", "bf16"])
def test_schedules_have_the_same_bits(
    scripts: Scripts, dtype: str, spellings: int, tmp_path: Path
) -> None:
    """Every schedule; in f32 also the other options that ask for serial and automatic ones."""
    found: list[tuple[list[float], dict[str, Any]]] = []
    for options in (
        ["--coc-mode", "0"],
        ["--coc-parallel-num", "4"],
        ["--coc-fused-kernel"],
        ["--coc-parallel-num", "1"],
        ["--use-ascend-coc"],
    )[:spellings]:
        saved = tmp_path / str(len(found))
        arguments = f"{TP2} {dtype} --sequence-parallel --train-iters 4"
        done = scripts.run(2, f"{arguments} --ckpt-format torch --save {saved}", options=options)
        assert "calls served by plait" in done.text
        found.append((done.losses, weights(saved)))
    (losses, expected), *others = found
    assert len(expected) > 20
    for theirs, values in others:
        assert theirs == losses
        assert values.keys() == expected.keys()
        assert all(torch.equal(values[name], expected[name]) for name in expected)


@thorough
def test_resumes_as_if_it_had_not_stopped(scripts: Scripts, tmp_path: Path) -> None:
    more = f"{TP2} --attention-dropout 0.1 --hidden-dropout 0.1 --train-iters 6"
    whole = scripts.run(2, more)
    saving = f"{more} --ckpt-format torch --save {tmp_path}"
    first = scripts.run(2, f"{saving} --exit-interval 3")
    second = scripts.run(2, f"{saving} --load {tmp_path}")
    assert first.losses == whole.losses[:3]
    # In the second step after a resume, Megatron prints the mean of two steps.
    again, _, last = second.losses
    assert [again, last] == [whole.losses[3], whole.losses[5]]
    norms = [re.findall(r"grad norm: (\S+)", run.text) for run in (whole, first, second)]
    assert norms[1] + norms[2] == norms[0]


def repeated(tokens: list[int], prefix: Path) -> list[str]:
    """Make a dataset in which every sample is these tokens, and return the options that name it."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.int32)
    builder.add_item(torch.tensor(tokens * 20, dtype=torch.int32))
    builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return ["--data-path", str(prefix), "--data-cache-path", f"{prefix}.cache"]


@thorough
def test_steps_of_bench_models_are_those_of_the_script(scripts: Scripts, tmp_path: Path) -> None:
    """./do bench models trains in a program of its own, whose weights have no copies in f32."""
    sys.path.insert(0, str(BENCH))
    steps: Any = importlib.import_module("steps")
    width, name = 1 / 64, "llama2-70b"
    model = steps.MODELS[name]
    sequence, vocabulary = steps.sizes(model, width)
    measured = ["--share", "0.1", "--link", "10gbit,5us", "--rounds", "3"]
    measured += ["--width", str(width), "--tokens", str(sequence)]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = run(*launch, str(BENCH / "steps.py"), name, *measured, "--json", str(tmp_path / "json"))
    (line,) = re.findall(r"losses: (.*)", done.stdout)
    expected = [float(loss) for loss in line.split()]
    row = steps.texts(1, sequence, vocabulary)[0, :-1]
    arguments = f"""{TP2} {LLAMA} --sequence-parallel --bf16 --attention-softmax-in-fp32
        --seed {steps.SEED} --lr {steps.RATE} --lr-decay-style constant --lr-warmup-iters 0
        --clip-grad 0 --adam-beta2 0.999 --micro-batch-size 1 --global-batch-size 1
        --num-layers {steps.LAYERS} --hidden-size {round(model.hidden * width)}
        --ffn-hidden-size {round(model.inner * width)} --kv-channels {steps.HEAD}
        --num-attention-heads {round(model.hidden * width) // steps.HEAD} --num-query-groups 2
        --seq-length {sequence} --max-position-embeddings {sequence}
        --tokenizer-type NullTokenizer --vocab-size {vocabulary - 1}
        --make-vocab-size-divisible-by 64 --train-iters {len(expected)} --split 100,0,0"""
    data = " ".join(repeated(row.tolist(), tmp_path / "text"))
    found = scripts.run(2, f"{arguments} {data}", environment={"PLAIT_WIRE": "bf16"})
    assert expected[-1] < expected[0] - 0.1
    assert found.losses[0] == pytest.approx(expected[0], rel=1e-5)
    expected[1] = (expected[0] + expected[1]) / 2  # in its second step the script prints a mean
    assert found.losses == pytest.approx(expected, rel=5e-3)


@thorough
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--transformer-impl transformer_engine", "--transformer-impl transformer_engine is on"),
        ("--fp8-format hybrid", "--fp8-format is on: it needs a GPU; use --bf16"),
        ("--cuda-graph-impl local", "--cuda-graph-impl is on"),
        ("--use-flash-attn", "--use-flash-attn is on"),
        ("--save folder", "--ckpt-format torch_dist is on: its writers import Triton; use torch"),
    ],
)
def test_what_needs_a_gpu_is_refused(scripts: Scripts, option: str, sentence: str) -> None:
    done = scripts.attempt(1, f"--train-iters 1 {option}")
    assert done.codes == [1]
    assert sentence in done.text
    assert "no tensor-parallel layer was called" not in done.text
    assert "Traceback" not in done.text
