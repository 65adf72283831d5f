"""Runs of Megatron-LM's pretrain_gpt.py, each of a few steps of a small model."""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAUNCH = str(Path(__file__).parent / "launch.py")
SMALL = """--num-layers 2 --hidden-size 128 --num-attention-heads 8 --seq-length 64
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 4 --lr 1e-3
    --lr-warmup-iters 1 --lr-decay-iters 10 --log-interval 1 --eval-interval 1000 --eval-iters 0
    --save-interval 1000 --attention-dropout 0 --hidden-dropout 0 --use-cpu-initialization
    --split 95,5,0"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass
class Run:
    """The text that a run of the script has printed, and how its ranks ended."""

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
        self.of_megatron = functools.cache(functools.partial(self.run, served=False))
        self.process = subprocess.Popen(
            [sys.executable, LAUNCH, str(folder / "pretrain_gpt.py")],
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
