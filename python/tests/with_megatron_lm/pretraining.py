"""Runs of Megatron-LM's pretrain_gpt.py, each of a few steps of a small model."""

import functools
from pathlib import Path
from typing import Any

from launching import Launcher, Run

SMALL = """--num-layers 2 --hidden-size 128 --num-attention-heads 8 --seq-length 64
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 4 --lr 1e-3
    --lr-warmup-iters 1 --lr-decay-iters 10 --log-interval 1 --eval-interval 1000 --eval-iters 0
    --save-interval 1000 --attention-dropout 0 --hidden-dropout 0 --use-cpu-initialization
    --split 95,5,0"""


class Scripts(Launcher):
    """Runs the script, from a process that has imported all it needs."""

    def __init__(self, folder: Path, data: list[str], outputs: Path) -> None:
        self.program = [str(folder / "pretrain_gpt.py"), *SMALL.split(), *data]
        self.of_megatron = functools.cache(functools.partial(self.run, served=False))
        path = f"{folder}:{Path(__file__).parent}"
        super().__init__(["imports_of_megatron"], outputs, PYTHONPATH=path)

    def run(self, ranks: int, arguments: str, served: bool = True, **more: Any) -> Run:
        """Train; `served`: by plait's layers, else by Megatron's own. It must end well."""
        done = self.attempt(ranks, arguments, served, **more)
        assert not any(done.codes), done.text[-5000:]
        return done

    def attempt(self, ranks: int, arguments: str, served: bool = True, **more: Any) -> Run:
        return self.start(ranks, *self.program, *arguments.split(), served=served, **more)
