"""Megatron-LM's own scripts, unmodified: where they are, and text to train on."""

import contextlib
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

import pytest

HERE = Path(__file__).parent
BESIDE = HERE.parents[2].parent / "shared" / "megatron-lm"
SMALL = """--num-layers 2 --hidden-size 128 --num-attention-heads 8 --seq-length 64
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 4 --lr 1e-3
    --lr-warmup-iters 1 --lr-decay-iters 10 --log-interval 1 --eval-interval 1000 --eval-iters 0
    --attention-dropout 0 --hidden-dropout 0 --use-cpu-initialization --split 95,5,0"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass
class Run:
    """What a run of the script has printed, and how its ranks ended."""

    codes: list[int]
    text: str

    @property
    def losses(self) -> list[float]:
        found = re.findall(r"iteration .*lm loss: (\S+)", self.text)
        return [float(one) for one in found]


class Scripts:
    """Runs pretrain_gpt.py, from a process that has imported all it needs (launch.py)."""

    def __init__(self, folder: Path, data: list[str], outputs: Path) -> None:
        self.data, self.outputs, self.count = data, outputs, 0
        self.process = subprocess.Popen(
            [sys.executable, HERE / "launch.py", folder / "pretrain_gpt.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.answer("ready")

    def answer(self, begin: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(begin):
                return line
        raise AssertionError("launch.py has ended")

    def run(self, ranks: int, arguments: str, served: bool = True, **more: Any) -> Run:
        """Train; `served`: by plait's layers, else by Megatron's own. It must end well."""
        done = self.attempt(ranks, arguments, served, **more)
        assert not any(done.codes), done.text[-5000:]
        return done

    def attempt(self, ranks: int, arguments: str, served: bool = True, **more: Any) -> Run:
        assert self.process.stdin is not None
        self.count += 1
        output = self.outputs / str(self.count)
        request = {
            "ranks": ranks,
            "arguments": [*SMALL.split(), *self.data, *arguments.split()],
            "served": served,
            "output": str(output),
            "seconds": 150,
            **more,
        }
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        codes = json.loads(self.answer("["))
        texts = (output.with_suffix(f".{rank}").read_text() for rank in range(ranks))
        return Run(codes, "".join(texts))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()


@pytest.fixture(scope="session")
def folder() -> Path:
    """Give the folder of Megatron-LM's scripts."""
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    found = Path(os.environ.get("PLAIT_MEGATRON_LM", BESIDE))
    if not (found / "pretrain_gpt.py").is_file():
        pytest.skip("Megatron-LM's scripts are not here: PLAIT_MEGATRON_LM names their folder")
    return found


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
    arguments = ["--input", made / "text.json", "--output-prefix", made / "text", "--append-eod"]
    done = subprocess.run(
        [sys.executable, "-m", "plait.megatron", script, *arguments, "--workers", "1", *tokenizer],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
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
