#!/usr/bin/env python3
"""Tries an installed plait in an environment that has nothing else, or little.

try_wheel.py MODULE...   imports these in their order (plait among them), and makes one product

The operands are NumPy's or torch's if one of them is named, or else plain memory. Without torch,
NumPy must not be there either unless it is named, so that plait is tried without it.
"""

import ctypes
import importlib
import importlib.util
import sys


def operands(modules):
    """Return x [2, 3], a weight [4, 3] and y [2, 4], of which all but y are ones."""
    plait = modules["plait"]
    if "numpy" in modules:
        numpy = modules["numpy"]
        x, w, y = (numpy.ones(shape, numpy.float32) for shape in ((2, 3), (4, 3), (2, 4)))
        return x, w, y, lambda: y.tolist()
    if "torch" in modules:
        torch = modules["torch"]
        x, w, y = (torch.ones(shape) for shape in ((2, 3), (4, 3), (2, 4)))
        return x, w, y, y.tolist
    memory = [(ctypes.c_float * (m * n))(*[1.0] * (m * n)) for m, n in ((2, 3), (4, 3), (2, 4))]
    x, w, y = (
        plait.TensorView(ctypes.addressof(one), plait.Dtype.f32, m, n, n)
        for one, (m, n) in zip(memory, ((2, 3), (4, 3), (2, 4)), strict=True)
    )
    return x, w, y, lambda: [list(memory[2][4 * i : 4 * i + 4]) for i in range(2)]


def main():
    """Import and multiply."""
    modules = {name: importlib.import_module(name) for name in sys.argv[1:]}
    plait = modules["plait"]
    x, w, y, result = operands(modules)
    with plait.Communicator.connect() as comm:
        plait.matmul_all_reduce(x, plait.WeightView(w, plait.WeightLayout.out_in), y, comm)
        plait.barrier(comm)
    assert result() == [[3.0] * 4] * 2, result()
    for name in {"torch", "numpy"} - set(modules):
        if name == "numpy" and "torch" in modules:
            continue  # torch loads it where it is
        assert name not in sys.modules, f"{name} was imported"
        assert importlib.util.find_spec(name) is None, f"{name} is in this environment"
    print(sys.version.split()[0], plait.__version__, *modules)


if __name__ == "__main__":
    main()
