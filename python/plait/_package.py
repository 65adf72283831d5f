"""What lies in this package's folder."""

import os
import warnings

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
        "bin",
        "errors.py",
        "lib",
        "megatron",
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
