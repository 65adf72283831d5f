"""plait/plait.h includes every public header that needs no other library."""

import re
import unittest
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "include"


class UmbrellaTest(unittest.TestCase):
    def test_lists_every_public_header(self):
        umbrella = INCLUDE / "plait/plait.h"
        listed = re.findall(r'^#include "(.+)"$', umbrella.read_text(), re.MULTILINE)
        headers = {f"plait/{file.name.removesuffix('.in')}" for file in INCLUDE.glob("plait/*.h*")}
        needs_mpi = "plait/mpi.h"
        self.assertEqual(listed, sorted(headers - {"plait/plait.h", needs_mpi}))


if __name__ == "__main__":
    unittest.main()
