"""Runs programs whose ranks share the imports of one process (launch.py)."""

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAUNCH = str(Path(__file__).parent / "launch.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def ended(
    *command: object, timeout: float = 300, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with one thread to a process and these variables."""
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )


def completed(*command: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which must be a good one."""
    done = ended(*command, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@dataclass
class Run:
    """The text that each rank of a run has printed, and how it ended."""

    codes: list[int]
    texts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def losses(self) -> list[float]:
        """Those that Megatron's scripts print."""
        return [float(one) for one in re.findall(r"iteration .*lm loss: (\S+)", self.text)]


class Launcher:
    """Runs programs, one after another, from a process that has imported these modules."""

    def __init__(self, modules: list[str], outputs: Path, **environment: str) -> None:
        self.outputs, self.count = outputs, 0
        self.process = subprocess.Popen(
            [sys.executable, LAUNCH, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **environment},
        )
        self.answer("ready")

    def answer(self, begin: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(begin):
                return line
        raise AssertionError("launch.py has ended")

    def start(self, ranks: int, *program: str, **more: Any) -> Run:
        """Run a program; launch.py says what else it can be told."""
        assert self.process.stdin is not None
        self.count += 1
        output = self.outputs / str(self.count)
        request = {"ranks": ranks, "program": program, "output": str(output), "seconds": 150}
        self.process.stdin.write(f"{json.dumps({**request, **more})}\n")
        self.process.stdin.flush()
        codes = json.loads(self.answer("["))
        return Run(codes, [output.with_suffix(f".{rank}").read_text() for rank in range(ranks)])

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
