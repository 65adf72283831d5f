#!/usr/bin/env python3
"""Checks the recipes in packaging/ and debian/ as far as that is possible without building them.

The recipe for conda-forge is rendered for Linux. That for Spack is only parsed, since Spack is no package of Python.
Every option of CMake that a recipe sets must be one of plait's. Needs py-rattler-build.
"""

import ast
import re
import sys
from pathlib import Path
from typing import Iterator

import rattler_build

ROOT = Path(__file__).resolve().parent.parent
CONDA, SPACK = ROOT / "packaging/conda", ROOT / "packaging/spack/package.py"
OPTION = re.compile(r"PLAIT_(?!PYTHON\b)[A-Z_]+")


def faults_of_conda(version: str) -> Iterator[str]:
    try:
        recipe = rattler_build.Stage0Recipe.from_file(CONDA / "recipe.yaml")
        variants = rattler_build.VariantConfig.from_file(CONDA / "variants.yaml")
        platform = rattler_build.PlatformConfig(target_platform="linux-64")
        found = recipe.render(variants, rattler_build.RenderConfig(platform=platform))
    except rattler_build.RattlerBuildError as error:
        yield f"{CONDA / 'recipe.yaml'}: {error}"
        return
    made = sorted(f"{one.recipe.package.name} {one.recipe.package.version}" for one in found)
    if made != [f"libplait {version}", f"plait {version}"]:
        yield f"{CONDA / 'recipe.yaml'} makes {', '.join(made)}"


def faults_of_spack(version: str) -> Iterator[str]:
    calls = {ast.unparse(node) for node in ast.walk(ast.parse(SPACK.read_text(encoding="utf-8"), SPACK))}
    if f"version('{version}')" not in calls:
        yield f"{SPACK} has no version {version}"


def unknown_options() -> Iterator[str]:
    cmake = [*ROOT.glob("cmake/*.cmake"), ROOT / "CMakeLists.txt", *ROOT.glob("src/**/CMakeLists.txt"),
             ROOT / "python/CMakeLists.txt"]
    known = {name for path in cmake for name in OPTION.findall(path.read_text(encoding="utf-8"))}
    for path in CONDA / "recipe.yaml", SPACK, ROOT / "debian/rules":
        for name in sorted(set(OPTION.findall(path.read_text(encoding="utf-8"))) - known):
            yield f"{path} sets {name}, which no CMake file of plait reads"


def main() -> int:
    version = sys.argv[1]
    faults = [*faults_of_conda(version), *faults_of_spack(version), *unknown_options()]
    print("\n".join(faults or ["the recipes can be read"]))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
