"""MindSpeed CoC's dictionary `coc_cfgs`, and the Python file in which its users keep it.

Both become the text of a settings file, one entry a line, so they are read by the same table as
settings files: with the same names, suggestions and refusals. A Python file is parsed, never run.
"""

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, NoReturn

import plait

CocCfgs = Mapping[str, object] | str | os.PathLike[str]

_NAME = "coc_cfgs"
_DICTIONARIES = (_NAME, "customized")


class _Entry(NamedTuple):
    path: tuple[object, ...]  # ("coc_cfgs", "customized_coc", "[16384, 5120, 1920]")
    value: object
    origin: str  # "user_config.py:7"


def load_coc_cfgs(cfgs: CocCfgs) -> plait.Settings:
    """Return what a dictionary sets, or the file of that path, and the environment before it.

    It takes the place of the file that PLAIT_CONFIG names, so there can't be both.
    """
    if file := os.environ.get("PLAIT_CONFIG"):
        _refuse(f"{_NAME} and PLAIT_CONFIG={file} can't be combined; leave out one of the two")
    if isinstance(cfgs, Mapping):
        return _read(list(_entries((_NAME,), cfgs)))
    if isinstance(cfgs, str | os.PathLike):
        return _read(list(_entries_of_file(os.fspath(cfgs))))
    kind = type(cfgs).__name__
    _refuse(f"{_NAME} is of type {kind}; it can be a dictionary, or the path of a file with one")


def _read(entries: list[_Entry]) -> plait.Settings:
    text = "\n".join(f"{_path(entry)} = {_value(entry)}" for entry in entries)
    try:
        return plait.load_settings(text, _NAME)
    except plait.Error as error:
        # "coc_cfgs:3" is the third entry.
        sentence = re.sub(
            rf"\b{_NAME}:(\d+)", lambda line: entries[int(line[1]) - 1].origin, str(error)
        )
        raise plait.Error(error.code, sentence) from None


def _entries(path: tuple[object, ...], value: object) -> Iterator[_Entry]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _entries((*path, name), inner)
    else:
        yield _Entry(path, value, _NAME)


def _entries_of_file(file: str) -> Iterator[_Entry]:
    """Yield what a file assigns. Imports, functions and classes around it assign nothing."""
    is_empty = True
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read(), file)
    except OSError as error:
        raise plait.Error(
            plait.Code.system, f"plait.megatron: cannot read {file}: {error.strerror}"
        ) from None
    except (SyntaxError, ValueError) as error:
        _refuse(f"{file}:{getattr(error, 'lineno', None) or 1}: it is not Python: {error}")
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ):
                if isinstance(value, ast.Dict) and name not in _DICTIONARIES:
                    _refuse(
                        f"{file}:{statement.lineno}: the dictionary {name} is not read; CoC's is "
                        f"expected under the name {_NAME}"
                    )
                is_empty = False
                yield from _entries_of_node((name,), value, file)
            case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef():
                pass
            case ast.Expr(ast.Constant()):  # a docstring
                pass
            case _:
                _refuse(
                    f"{file}:{statement.lineno}: the file is read and not run, so it can only "
                    f"assign: {_NAME} = {{...}}"
                )
    if is_empty:
        _refuse(f"{file} assigns nothing; it should assign {_NAME} = {{...}}")


def _entries_of_node(path: tuple[object, ...], node: ast.expr, file: str) -> Iterator[_Entry]:
    origin = f"{file}:{node.lineno}"
    try:
        if isinstance(node, ast.Dict) and node.keys:
            for name, inner in zip(node.keys, node.values, strict=True):
                if name is None:
                    raise ValueError("**")
                yield from _entries_of_node((*path, ast.literal_eval(name)), inner, file)
        else:
            yield _Entry(path, ast.literal_eval(node), origin)
    except (TypeError, ValueError):  # TypeError: a list in a set
        _refuse(
            f"{origin}: {path[-1]} = {ast.unparse(node)}: the file is read and not run, so its "
            "values can only be literals"
        )


def _path(entry: _Entry) -> str:
    """Return the names of an entry, quoted; a shape may be a tuple."""
    names = [str(list(name)) if isinstance(name, tuple) else name for name in entry.path]
    for name in names:
        if not isinstance(name, str):
            _refuse(f"{entry.origin}: the key {name!r} is not a text")
    return ".".join(json.dumps(name, ensure_ascii=False) for name in names)


def _value(entry: _Entry) -> str:
    value = entry.value
    if isinstance(value, Mapping):  # it is empty
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    _refuse(f"{entry.origin}: {entry.path[-1]} = {value!r}: no setting has such a value")


def _refuse(sentence: str) -> NoReturn:
    raise plait.Error(plait.Code.invalid_argument, f"plait.megatron: {sentence}")
