"""tools/add_licenses.py: a wheel gets the licences of what it holds, and stays a wheel."""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/add_licenses.py"
INFO = "plait-1.0.dist-info"


class AddLicensesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.wheel = Path(folder.name, "plait.whl")
        bindings = Path(folder.name, "nanobind-3.0.dist-info")
        bindings.mkdir()
        (bindings / "METADATA").write_text("Name: nanobind\nVersion: 3.0\n")
        (bindings / "LICENSE").write_text("of the bindings")
        (bindings / "RECORD").write_text("nanobind-3.0.dist-info/LICENSE,,\n")
        self.environment = {**os.environ, "PYTHONPATH": folder.name}

    def add(self, library):
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr(library, "code")
            wheel.writestr(f"{INFO}/METADATA", "Name: plait\nLicense-File: LICENSE\n")
            wheel.writestr(f"{INFO}/RECORD", f"{library},,\n{INFO}/METADATA,sha256=old,1\n{INFO}/RECORD,,\n")
        return subprocess.run([sys.executable, "-B", TOOL, self.wheel], capture_output=True, text=True, timeout=60,
                              env=self.environment)

    def test_the_wheel_has_the_texts_and_lists_them(self):
        done = self.add("plait/_lib/libgomp.so.1.0.0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with zipfile.ZipFile(self.wheel) as wheel:
            contents = {name: wheel.read(name) for name in wheel.namelist()}
        of_gcc = contents[f"{INFO}/licenses/carried/libgomp1.txt"].decode()
        self.assertIn("RUNTIME LIBRARY EXCEPTION", of_gcc.upper())
        self.assertEqual(contents[f"{INFO}/licenses/carried/nanobind.txt"], b"of the bindings")
        for name in re.findall(r"common-licenses/(GPL-\d)", of_gcc):
            self.assertIn(b"GNU GENERAL PUBLIC LICENSE", contents[f"{INFO}/licenses/carried/common-licenses/{name}"])
        listed = re.findall(r"^License-File: (.+)$", contents[f"{INFO}/METADATA"].decode(), re.MULTILINE)
        kept = [name for name in contents if "/licenses/" in name]
        self.assertEqual(["LICENSE"] + [name.removeprefix(f"{INFO}/licenses/") for name in kept], listed)
        for name, digest, size in csv.reader(contents[f"{INFO}/RECORD"].decode().splitlines()):
            if digest:
                made = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), ("sha256=" + made, len(contents[name])), name)
        self.assertEqual(list(contents)[-1], f"{INFO}/RECORD")

    def test_refuses_libraries_whose_licence_it_does_not_know(self):
        for library, sentence in [
            ("plait.libs/libc-0a1b2c3d.so.6", "the wheel holds libc6: add its licence to tools/wheel_parts.py"),
            ("plait.libs/libnone-0a1b2c3d.so.6", "no package of this machine has it"),
            ("plait.libs/other.so", "this is no name of a library with its version"),
        ]:
            done = self.add(library)
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
