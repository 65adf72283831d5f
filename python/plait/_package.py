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

own_openmp: str | None = None  # the folder of the OpenMP that load_openmp() took


def warn_of_foreign_files(folder: str = os.path.dirname(__file__)) -> None:
    """Say so where another distribution has installed a package of the same name."""
    found = {name for name in os.listdir(folder) if not name.startswith("_native.")}
    foreign = sorted(found - OURS)
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

    global own_openmp
    own_openmp = os.path.join(folder, "_lib")
    ctypes.CDLL(os.path.join(own_openmp, "libgomp.so.1"), mode=ctypes.RTLD_GLOBAL)


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
