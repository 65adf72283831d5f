"""The files in this package's folder, and the packages that its parts need."""

import contextlib
import os
import warnings
from collections.abc import Iterator

OURS = frozenset(
    {
        "__init__.py",
        "__main__.py",
        "__pycache__",
        "_entry.py",
        "_lib",
        "_native.abi3.so",
        "_native.pyi",
        "_package.py",
        "_typing.py",
        "_vllm_plugin.py",
        "bin",
        "errors.py",
        "lib",
        "megatron",
        "peft.py",
        "py.typed",
        "threads.py",
        "torch",
        "transformers",
        "vllm",
    }
)


def warn_of_foreign_files(folder: str = os.path.dirname(__file__)) -> None:
    """Say so where another distribution has installed a package of the same name."""
    foreign = sorted(set(os.listdir(folder)) - OURS)
    if foreign:
        warnings.warn(
            f"{folder} holds files that are not plait's ({', '.join(foreign)}): another "
            "distribution, such as pyplait, installs a package called plait too, and the two "
            "cannot share an environment.",
            RuntimeWarning,
            stacklevel=3,
        )


def load_openmp(folder: str = os.path.dirname(__file__)) -> None:
    """Load the OpenMP that lies in the package, for a system that has none.

    It keeps its name, by which torch asks for it too: the two share one pool of threads.
    """
    import ctypes

    ctypes.CDLL(os.path.join(folder, "_lib", "libgomp.so.1"), mode=ctypes.RTLD_GLOBAL)


@contextlib.contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say which packages plait's part `extra` needs, where one is missing or too old.

    It stands around the part's first imports.
    """
    try:
        yield
    except ImportError as error:
        is_said = str(error).startswith("plait.")  # by another part, which this one imports
        if is_said or (error.name or "").startswith("plait"):
            raise
        raise type(error)(
            f"plait.{extra} needs {_packages_of(extra)}; plait's extra [{extra}] installs them "
            f"({error})",
            name=error.name,
        ) from error


def _packages_of(extra: str) -> str:
    import importlib.metadata  # takes longer than all of plait, which seldom needs it

    try:
        needed = importlib.metadata.requires("plait") or []
    except importlib.metadata.PackageNotFoundError:  # a folder that was copied, not installed
        return "more packages"
    found = [one.partition(";") for one in needed]
    return ", ".join(package.strip() for package, _, of in found if f'"{extra}"' in of)
