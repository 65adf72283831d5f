"""The packages of Debian and PyPI that a wheel of this machine holds parts of, and their licences."""

import importlib.metadata
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Iterator, NamedTuple

CARRIED = re.compile(r"plait\.libs/.*\.so|plait/_lib/.*\.so")
LIBRARY = re.compile(r"(?P<name>lib[\w+-]+?)(?:-[0-9a-f]{8})?\.so\.(?P<version>[\d.]+)")
# Packages of headers, which are compiled in.
HEADERS = ["libcli11-dev", "nlohmann-json3-dev", "libfmt-dev"]
BINDINGS = "nanobind"
LICENSES = {
    "libcli11-dev": "BSD-3-Clause",
    "libfmt-dev": "MIT",
    "libfmt9": "MIT",
    "libgomp1": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libhwloc15": "BSD-3-Clause",
    "libudev1": "LGPL-2.1-or-later",
    "nanobind": "BSD-3-Clause",
    "nlohmann-json3-dev": "MIT",
}
COMMON = Path("/usr/share/common-licenses")  # long ones, which Debian's packages only name


class Carried(NamedTuple):
    file: str  # in the wheel
    package: str


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def carried(wheel: zipfile.ZipFile) -> Iterator[Carried]:
    """Yield the libraries that the wheel holds, and the packages of this machine that they are from."""
    for name in sorted(wheel.namelist()):
        if not CARRIED.match(name):
            continue
        found = LIBRARY.fullmatch(Path(name).name)
        if found is None:
            raise SystemExit(f"{name}: this is no name of a library with its version")
        original = f"{found['name']}.so.{found['version']}"
        owners = said("dpkg-query", "-S", f"*/{original}").splitlines()
        if not owners:
            raise SystemExit(f"{name}: no package of this machine has it; use the machine that built the wheel")
        # Other architectures, and packages with copies of their own, may have a file of this name too. Some packages
        # say /lib for /usr/lib.
        linked = f"/lib/{said('dpkg-architecture', '-qDEB_HOST_MULTIARCH').strip()}/{original}"
        owners.sort(key=lambda line: line.split()[-1].removeprefix("/usr") != linked)
        yield Carried(name, owners[0].partition(":")[0])


def license_of(package: str) -> str:
    if package not in LICENSES:
        raise SystemExit(f"the wheel holds {package}: add its licence to tools/wheel_parts.py")
    return LICENSES[package]


def license_texts(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the texts of all licences, by names of files."""
    packages = sorted({*HEADERS, *(one.package for one in carried(wheel))})
    texts = {}
    for package in packages:
        license_of(package)
        texts[f"{package}.txt"] = Path("/usr/share/doc", package, "copyright").read_bytes()
    distribution = importlib.metadata.distribution(BINDINGS)
    ours = next(file for file in distribution.files or [] if file.name == "LICENSE")
    texts[f"{BINDINGS}.txt"] = Path(str(ours.locate())).read_bytes()
    named = set(re.findall(rb"common-licenses/([\w.-]*\w)", b"\n".join(texts.values())))
    for name in sorted(named):
        texts[f"common-licenses/{name.decode()}"] = (COMMON / name.decode()).read_bytes()
    return texts
