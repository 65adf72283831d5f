#!/usr/bin/env python3
"""Lists what a wheel is made of, as CycloneDX JSON.

    tools/list_components.py WHEEL OUT

The list has the libraries that the wheel carries, with their checksums and licences; the headers that were compiled
into its own binaries; and the packages that pip installs with it. The Debian packages are those of this machine, so
the list is made where the wheel was built. The same wheel gives the same list. Needs cyclonedx-python-lib.
"""

import email
import email.message
import hashlib
import re
import sys
import uuid
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Iterator

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from wheel_parts import BINDINGS, HEADERS, carried, license_of, said

ROOT = Path(__file__).resolve().parent.parent


def of_debian(package: str) -> dict:
    """Name, version and address of an installed package; of this machine's architecture if there are several."""
    form = "${Package} ${Version} ${Architecture}\\n"
    rows = [row.split() for row in said("dpkg-query", "-W", "-f", form, package).splitlines()]
    if not rows:
        raise SystemExit(f"{package} is not installed: list the components where the wheel was built")
    native = said("dpkg", "--print-architecture").strip()
    name, version, architecture = min(rows, key=lambda row: row[2] not in (native, "all"))
    url = PackageURL("deb", "debian", name, version, {"arch": architecture})
    return {"name": name, "version": version, "purl": url}


def licensed(package: str) -> dict:
    return {"licenses": [LicenseExpression(license_of(package))]}


def carried_components(wheel: zipfile.ZipFile) -> Iterator[Component]:
    for name, package in carried(wheel):
        checksum = HashType(
            alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read(name)).hexdigest()
        )
        yield Component(
            type=ComponentType.LIBRARY,
            bom_ref=name,
            description=f"carried as {name}",
            scope=ComponentScope.REQUIRED,
            hashes=[checksum],
            **of_debian(package),
            **licensed(package),
        )


def compiled_in() -> Iterator[Component]:
    for package in HEADERS:
        yield Component(
            type=ComponentType.LIBRARY,
            bom_ref=package,
            description="headers compiled into the binaries",
            **of_debian(package),
            **licensed(package),
        )
    text = (ROOT / "python/requirements-test.txt").read_text(encoding="utf-8")
    version = re.search(rf"^{BINDINGS}==(\S+)$", text, re.MULTILINE)[1]
    yield Component(
        type=ComponentType.LIBRARY,
        bom_ref=BINDINGS,
        name=BINDINGS,
        version=version,
        purl=PackageURL("pypi", name=BINDINGS, version=version),
        description="headers compiled into the module",
        **licensed(BINDINGS),
    )


def installed_with(metadata: email.message.Message) -> Iterator[Component]:
    for need in metadata.get_all("Requires-Dist", []):
        if "extra ==" in need:
            continue
        name = re.match(r"[\w.-]+", need)[0]
        yield Component(
            type=ComponentType.LIBRARY,
            bom_ref=f"needs {name}",
            name=name,
            purl=PackageURL("pypi", name=name),
            description=f"installed by pip: {need}",
            scope=ComponentScope.REQUIRED,
        )


def list_components(path: Path) -> str:
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as wheel:
        head = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(head))
        newest = max(entry.date_time for entry in wheel.infolist())
        parts = [*carried_components(wheel), *compiled_in(), *installed_with(metadata)]
    root = Component(
        type=ComponentType.LIBRARY,
        bom_ref="plait",
        name=metadata["Name"],
        version=metadata["Version"],
        purl=PackageURL("pypi", name=metadata["Name"], version=metadata["Version"]),
        licenses=[LicenseExpression(metadata["License-Expression"])],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)],
    )
    bom = Bom(components=parts, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, checksum))
    bom.metadata.component = root
    bom.metadata.timestamp = datetime(*newest, tzinfo=timezone.utc)
    bom.register_dependency(root, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        raise SystemExit("usage: tools/list_components.py WHEEL OUT")
    text = list_components(Path(sys.argv[1]))
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"the list is not valid: {error}")
    Path(sys.argv[2]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
