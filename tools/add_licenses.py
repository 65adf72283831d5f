#!/usr/bin/env python3
"""Adds the licences of the libraries and headers that a wheel holds to it.

    tools/add_licenses.py WHEEL

The texts are of this machine's packages, so this runs where the wheel was built, in the environment
with the nanobind that built it. The same wheel becomes the same file.
"""

import base64
import csv
import hashlib
import io
import sys
import zipfile
from pathlib import Path

from wheel_parts import license_texts


def row_of(name: str, content: bytes) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [name, f"sha256={digest}", str(len(content))]


def add_licenses(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        entries = [(info, wheel.read(info)) for info in wheel.infolist()]
        texts = license_texts(wheel)
    newest = max(info.date_time for info, _ in entries)
    record = next(info for info, _ in entries if info.filename.endswith(".dist-info/RECORD"))
    folder = record.filename.removesuffix("RECORD")
    rows = list(csv.reader(io.StringIO(dict((i.filename, c) for i, c in entries)[record.filename].decode())))
    if any(row[0].startswith(f"{folder}licenses/carried/") for row in rows):
        raise SystemExit(f"{path} has licences of what it holds already")

    added = {f"carried/{name}": content for name, content in texts.items()}
    changed = []
    for info, content in entries:
        if info.filename == f"{folder}METADATA":
            lines = "".join(f"License-File: {name}\n" for name in added).encode()
            content = content.replace(b"License-File: LICENSE\n", b"License-File: LICENSE\n" + lines, 1)
            rows = [row_of(info.filename, content) if row[0] == info.filename else row for row in rows]
        changed.append((info, content))
    for name, content in added.items():
        info = zipfile.ZipInfo(f"{folder}licenses/{name}", newest)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        changed.append((info, content))
        rows.append(row_of(info.filename, content))
    rows.sort(key=lambda row: row[0] == record.filename)  # its own row is the last
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    changed = [one for one in changed if one[0] is not record] + [(record, text.getvalue().encode())]

    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        for info, content in changed:
            out.writestr(info, content)
    part.replace(path)


def main() -> int:
    if len(sys.argv) != 2:
        raise SystemExit("usage: tools/add_licenses.py WHEEL")
    add_licenses(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
