#!/usr/bin/env python3
"""Writes docs/reference/python.md from the docstrings of the package, which must be installed.

make_reference.py          writes it
make_reference.py --check  fails where it is not what would be written, and shows the difference

Names that come from the native module have their signatures from plait/_native.pyi. Integrations
whose frameworks are missing can't be imported: it needs torch, Megatron-Core, transformers and
peft.
"""

import ast
import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "python.md"
STUB = ROOT / "python" / "plait" / "_native.pyi"
MODULES = [
    "plait",
    "plait.torch",
    "plait.torch.dtensor",
    "plait.torch.compiler",
    "plait.torch.backend",
    "plait.torch.engines.c10d",
    "plait.megatron",
    "plait.transformers",
    "plait.peft",
    "plait.vllm",
    "plait.torch.symm_mem",
]
# The page tells what these do, and lists no name of theirs.
INSIDE = ("plait.torch.backend", "plait.torch.engines.c10d")
HEAD = """# Python reference

Every public name of the package, module by module, from its docstrings.
`tools/make_reference.py` writes this page. [PyTorch](../guides/pytorch.md),
[Megatron-Core](../guides/megatron.md) and [Hugging Face](../guides/hugging-face.md) explain them in
context.
"""


def native_nodes() -> dict[str, list[Any]]:
    """Return what the stub has of each name; an overloaded function has several."""
    found: dict[str, list[Any]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


NATIVE = native_nodes()


def prose(docstring: str | None) -> Iterator[str]:
    """Write a docstring as Markdown: examples and tables become blocks of code."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    fence = ""
    for line, following in zip(lines, [*lines[1:], ""][: len(lines)], strict=True):
        is_code = line.startswith((">>>", "...", "    ")) or (fence == "example" and line.strip())
        if is_code and not fence:
            fence = "example" if line.startswith(">>>") else "block"
            yield "```python" if fence == "example" else "```"
        if fence == "block" and not line.strip() and following.startswith("    "):
            is_code = True
        if fence and not is_code:
            fence = ""
            yield "```"
        yield line.removeprefix("    ") if fence == "block" else line
    if fence:
        yield "```"


def stub_function(node: ast.FunctionDef) -> str:
    """Return a signature without `self`."""
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    arguments = arguments.removeprefix("/, ")
    returns = ast.unparse(node.returns) if node.returns else "None"
    return f"({arguments}) -> {returns}"


def native(name: str) -> Iterator[str]:
    """Write a name of the native module."""
    for node in NATIVE[name]:
        if isinstance(node, ast.FunctionDef):
            yield from function(name, stub_function(node), ast.get_docstring(node))
        else:
            yield from native_class(name, node)


def native_class(name: str, node: ast.ClassDef) -> Iterator[str]:
    yield from [f"### `{name}`", "", *prose(ast.get_docstring(node)), ""]
    values = [one.targets[0].id for one in node.body if isinstance(one, ast.Assign)]  # type: ignore[attr-defined]
    if values:
        yield from ["Values: " + ", ".join(f"`{value}`" for value in values) + ".", ""]
    attributes: list[str] = []
    for one in node.body:
        if not isinstance(one, ast.FunctionDef):
            continue
        decorators = {ast.unparse(each) for each in one.decorator_list}
        if one.name == "__init__":
            yield from [f"`{name}{stub_function(one).removesuffix(' -> None')}`", ""]
            yield from with_blank(prose(ast.get_docstring(one)))
        elif "property" in decorators:
            about = ast.get_docstring(one)
            words = f": {' '.join(about.split())}" if about else ""
            attributes.append(f"- `{one.name}`{words}")
        elif not one.name.startswith("_") and not any(".setter" in each for each in decorators):
            about = " ".join((ast.get_docstring(one) or "").split())
            attributes.append(f"- `{one.name}{stub_function(one)}`: {about}".removesuffix(": "))
    yield from with_blank(attributes)


def with_blank(lines: Any) -> Iterator[str]:
    """Put an empty line behind lines, if there are any."""
    made = list(lines)
    yield from [*made, ""] if "".join(made) else []


def function(name: str, signature: str, docstring: str | None) -> Iterator[str]:
    """Write a function."""
    yield from [f"### `{name}`", "", "```python", f"{name}{signature}", "```", ""]
    yield from with_blank(prose(docstring))


def signature_of(thing: Any) -> str:
    """Return a signature, the same on every machine."""
    text = str(inspect.signature(thing)).replace("(self, ", "(").replace("(self)", "()")
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = text.replace("plait._native.", "plait.").replace("collections.abc.", "")
    text = text.replace("torch.distributed.distributed_c10d.", "dist.")
    ours = r"plait\.(?:torch|megatron|transformers)\.\w+"
    text = re.sub(rf"\b(?:{ours}|torch\.nn\.modules\.linear)\.(?=[A-Z])", "", text)
    return re.sub(r"Options\(schedule=None.*?\)", "Options()", text)


def python_class(name: str, thing: type) -> Iterator[str]:
    """Write a class, and what it does not inherit from another package."""
    yield from [f"### `{name}`", "", "```python", f"{name}{signature_of(thing)}", "```", ""]
    yield from with_blank(prose(inspect.getdoc(thing)))
    methods: list[str] = []
    for owner in thing.__mro__:
        if not owner.__module__.startswith("plait"):
            continue
        for each, member in vars(owner).items():
            plain = getattr(member, "__func__", member)
            if each.startswith("_") or any(f"`{each}" in one for one in methods):
                continue
            if isinstance(member, property):
                methods.append(f"- `{each}`: {' '.join((member.__doc__ or '').split())}")
            elif inspect.isfunction(plain) and plain.__doc__:
                first = inspect.cleandoc(plain.__doc__).split("\n\n")[0]
                text = signature_of(plain).replace("(cls, ", "(")
                methods.append(f"- `{each}{text}`: {' '.join(first.split())}")
    yield from with_blank(methods)


def names_of(module: Any) -> list[str]:
    """List what a module offers."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not _is_torchs(module, name)]
    here = [name for name, one in vars(module).items() if _is_of(one, module)]
    return sorted(name for name in here if not name.startswith("_"))


def _is_torchs(module: Any, name: str) -> bool:
    """Say whether a name is private, or of torch, which documents it."""
    one = getattr(module, name)
    return name.startswith("_") or getattr(one, "__module__", "").startswith("torch")


def _is_of(one: Any, module: Any) -> bool:
    return getattr(one, "__module__", "") == module.__name__ and callable(one)


def entry(module: Any, name: str) -> Iterator[str]:
    """Write one name of a module."""
    thing = getattr(module, name)
    if module.__name__ == "plait" and name in NATIVE:
        yield from native(name)
    elif inspect.isclass(thing):
        yield from python_class(name, thing)
    elif callable(thing) and hasattr(thing, "__name__"):
        yield from function(name, signature_of(thing), inspect.getdoc(thing))
    else:
        yield from [f"### `{name}`", "", f"`{thing}`".replace("typing.", ""), ""]


def make() -> str:
    """Return the page."""
    lines = HEAD.splitlines()
    for name in MODULES:
        module = importlib.import_module(name)
        lines += ["", f"## {name}", "", *prose(module.__doc__), ""]
        for each in () if name in INSIDE else names_of(module):
            lines += entry(module, each)
        while not lines[-1]:
            lines.pop()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> int:
    """Write or compare."""
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    made = make()
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(made)
        return 0
    there = PAGE.read_text() if PAGE.exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(
            there.splitlines(True),
            made.splitlines(True),
            str(PAGE.relative_to(ROOT)),
            "what tools/make_reference.py writes",
        )
    )
    return int(made != there)


if __name__ == "__main__":
    sys.exit(main())
