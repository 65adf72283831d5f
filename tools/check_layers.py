#!/usr/bin/env python3
"""Checks that includes go one way, as tools/layers.txt says.

    tools/check_layers.py [--root FOLDER]

A module is a folder of src/, which holds the library, or of app/, which holds the application, or one inside such a
folder if layers.txt has a line for it. Its line names the modules whose headers it may include; a folder that has no
line stands for the modules inside it. The library knows nothing of the application. Public headers and examples see
only public headers and the standard library (examples: any library). Each source below src/ and app/ is named by a
CMakeLists.txt there. One line per violation:

    src/gemm/onednn/onednn.cc:14: gemm may not include comm
    src/gemm/old.cc: no target of src/ compiles it
"""

import argparse
import os
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Iterator, NamedTuple

SOURCES = {".h", ".cc", ".cuh", ".cu"}
COMPILED = {".cc", ".cu"}
LIBRARY, APPLICATION = "src", "app"
ROOFS = (LIBRARY, APPLICATION)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>["<])(?P<path>[^">]+)[">]')
STANDARD = set(
    """algorithm any array atomic barrier bit bitset cassert ccomplex cctype cerrno cfenv cfloat charconv chrono
    cinttypes climits clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal
    cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem
    format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator latch
    limits list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges ratio
    regex scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token
    streambuf string string_view strstream syncstream system_error thread tuple type_traits typeindex typeinfo
    unordered_map unordered_set utility valarray variant vector version""".split()
)


# Public headers for programs that use a library beside plait, which is compiled in these programs.
ADAPTERS = {("include/plait/mpi.h", "mpi.h")}


class Include(NamedTuple):
    file: Path  # relative to the root
    line: int
    quoted: bool
    path: str

    @property
    def head(self) -> str:
        """The part before the first slash: a module, `plait`, or nothing for a bare name."""
        return self.path.split("/")[0] if "/" in self.path else ""

    def complain(self, text: str) -> str:
        return f"{self.file}:{self.line}: {text}"


def read_layers(text: str) -> tuple[dict[str, set[str]], list[str]]:
    """The modules, each with those it may include, and what is wrong with the table itself."""
    layers: dict[str, set[str]] = {}
    errors = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, colon, allowed = line.partition(":")
        module = module.strip()
        if not colon or not re.fullmatch(r"\w+(/\w+)*", module):
            errors.append(f"tools/layers.txt:{number}: not of the form `module: module ...`")
        elif module in layers:
            errors.append(f"tools/layers.txt:{number}: {module} has a line already")
        else:
            layers[module] = set(allowed.split())
    for module, allowed in layers.items():
        if "*" in allowed:
            allowed = set(layers) - {module}
        layers[module] = {inner for name in allowed for inner in inside(name, layers) or [name]}
        for unknown in sorted(layers[module] - set(layers)):
            errors.append(f"tools/layers.txt: {module} names {unknown}, which has no line")
    return layers, errors


def inside(name: str, layers: dict[str, set[str]]) -> list[str]:
    """The modules inside a folder that is none itself."""
    return [] if name in layers else [one for one in layers if one.startswith(name + "/")]


def find_cycle(graph: dict) -> list:
    """Nodes that lead back to the first of them, or an empty list."""
    done = set()
    path: list = []

    def visit(node) -> list:
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return []
        path.append(node)
        for following in sorted(graph.get(node, ())):
            if cycle := visit(following):
                return cycle
        path.pop()
        done.add(node)
        return []

    for node in sorted(graph):
        if cycle := visit(node):
            return cycle
    return []


def sources_below(root: Path, folder: str) -> list[Path]:
    return [file for file in sorted((root / folder).rglob("*")) if file.suffix in SOURCES]


def includes_below(root: Path, folder: str) -> Iterator[Include]:
    for file in sources_below(root, folder):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if match := INCLUDE.match(line):
                yield Include(file.relative_to(root), number, match["open"] == '"', match["path"])


def exists(root: Path, include: Include) -> bool:
    candidates = [root / folder / include.path for folder in (*ROOFS, "include")]
    return any(c.exists() or c.with_name(c.name + ".in").exists() for c in candidates)


def module_of(path: str, layers: dict[str, set[str]]) -> str:
    """The module of a file, whose path is that below its roof; a folder that is none, where it belongs to none."""
    folders = path.split("/")[:-1]
    inner = ["/".join(folders[:count]) for count in range(len(folders), 0, -1)]
    return next((one for one in inner if one in layers), inner[0] if inner else "")


def check_module_include(root: Path, layers: dict[str, set[str]], include: Include) -> str:
    """Return the fault of an include in a module, or nothing."""
    ours = include.head in heads_of(layers) or include.head == "plait"
    if not include.quoted and not (ours and exists(root, include)):
        return ""
    if not ours:
        return f'"{include.path}" is not "module/file.h" or "plait/file.h" of a known module'
    if not exists(root, include):
        return f"{include.path} does not exist"
    module = module_of(below_roof(include.file), layers)
    included = module_of(include.path, layers)
    if included in {"plait", module}:
        return ""
    if included not in layers[module]:
        return f"{module} may not include {included}"
    if include.file.parts[0] == LIBRARY and (root / APPLICATION / include.path).exists():
        return f"the library may not include {included}, which is of the application"
    return ""


def below_roof(file: Path) -> str:
    """The path of a file of src/ or app/ without this folder, as an #include spells it."""
    return "/".join(file.parts[1:])


def heads_of(layers: dict[str, set[str]]) -> set[str]:
    return {module.split("/")[0] for module in layers}


def check_names(root: Path) -> list[str]:
    library, application = ({one.name for one in (root / roof).glob("*/")} for roof in ROOFS)
    return [f"{name}: a module of both src/ and app/" for name in sorted(library & application)]


def check_folders(root: Path, layers: dict[str, set[str]]) -> list[str]:
    folders = {file.relative_to(root).parent for roof in ROOFS for file in sources_below(root, roof)}
    strangers = [
        folder for folder in sorted(folders) if module_of(below_roof(folder / "a"), layers) not in layers
    ]
    return [f"{folder}: belongs to no module of tools/layers.txt" for folder in strangers]


def check_modules(root: Path, layers: dict[str, set[str]]) -> list[str]:
    return [
        include.complain(problem)
        for roof in ROOFS
        for include in includes_below(root, roof)
        if module_of(below_roof(include.file), layers) in layers
        if (problem := check_module_include(root, layers, include))
    ]


def check_targets(root: Path) -> list[str]:
    """Complains about sources that no target of their roof compiles: they belong to other folders, or to none."""
    named = [
        os.path.normpath(lists.parent / re.sub(r"\$\{\w+\}", "*", name))
        for roof in ROOFS
        for lists in (root / roof).rglob("CMakeLists.txt")
        for line in lists.read_text(encoding="utf-8").splitlines()
        for name in re.findall(r"[\w./${}-]+\.(?:cc|cu)\b", line.split("#")[0])
    ]
    return [
        f"{file.relative_to(root)}: no target of {roof}/ compiles it"
        for roof in ROOFS
        for file in sources_below(root, roof)
        if file.suffix in COMPILED and not any(fnmatch(str(file), name) for name in named)
    ]


def check_public(root: Path) -> list[str]:
    errors = []
    for include in includes_below(root, "include/plait"):
        if include.head == "plait" and not exists(root, include):
            errors.append(include.complain(f"{include.path} does not exist"))
        elif (include.file.as_posix(), include.path) in ADAPTERS:
            continue
        elif include.head != "plait" and include.path not in STANDARD:
            errors.append(
                include.complain(
                    f"a public header may not include {include.path}: only plait/ and the standard library"
                )
            )
    return errors


def check_examples(root: Path, layers: dict[str, set[str]]) -> list[str]:
    return [
        include.complain(f"an example may not include {include.head}: only public headers")
        for include in includes_below(root, "examples")
        if include.head in heads_of(layers)
    ]


def header_graph(root: Path) -> dict[str, set[str]]:
    """Each header with our headers that it includes, all as an #include spells them."""
    graph: dict[str, set[str]] = {}
    for folder in (*ROOFS, "include"):
        for include in includes_below(root, folder):
            if include.file.suffix in {".h", ".cuh"} and exists(root, include):
                graph.setdefault(str(include.file.relative_to(folder)), set()).add(include.path)
    return graph


def check(root: Path) -> list[str]:
    layers, errors = read_layers((root / "tools/layers.txt").read_text(encoding="utf-8"))
    if cycle := find_cycle(layers):
        errors.append("tools/layers.txt: a cycle: " + " -> ".join(cycle))
    if errors:
        return errors
    errors = check_names(root) + check_folders(root, layers) + check_modules(root, layers)
    errors += check_targets(root) + check_public(root) + check_examples(root, layers)
    if cycle := find_cycle(header_graph(root)):
        errors.append("headers include one another: " + " -> ".join(cycle))
    return errors


def tested(root: Path) -> tuple[int, int]:
    """How many sources have a test of the same name in their module's tests, and how many there are."""
    tests = {
        (file.relative_to(root / "tests").parts[0], file.name.split("_test.")[0])
        for file in (root / "tests").rglob("*_test.*")
    }
    sources = [file.relative_to(root / roof) for roof in ROOFS for file in (root / roof).rglob("*.cc")]
    return sum((file.parts[0], file.stem) in tests for file in sources), len(sources)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Checks that includes go one way, as tools/layers.txt says."
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    errors = check(root)
    count, of = tested(root)
    said = f"includes go one way; {count} of {of} sources have a test of the same name"
    print("\n".join(errors) if errors else said)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
