"""Writes violations into a small tree, and checks that tools/check_layers.py reports them."""

import tempfile
import unittest
from pathlib import Path

import check_layers

LAYERS = """
# a comment
base:
comm: base
gemm: base
cli: *
"""


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("tools/layers.txt", LAYERS)
        # Each source is compiled, except those of the tests of this.
        for roof in ("src", "app"):
            self.write(f"{roof}/CMakeLists.txt", "${folder}/${name}.cc ${name}.cc")
        self.write("include/plait/error.h", "#include <string>\n")
        self.write("include/plait/version.h.in", "")
        self.write("src/base/fd.h", '#include <unistd.h>\n#include "plait/error.h"\n')
        self.write("src/comm/mailbox.h", '#include "base/fd.h"\n')
        self.write("src/gemm/tile.h", "")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def expect(self, *errors):
        self.assertEqual(check_layers.check(self.root), list(errors))

    def test_sources_with_a_test_of_the_same_name_are_counted(self):
        self.write("src/comm/near.cc", "")
        self.write("src/comm/mpi/far.cc", "")
        self.write("src/gemm/far.cc", "")
        self.assertEqual(check_layers.tested(self.root), (0, 3))
        self.write("tests/comm/far_test.cc", "")
        self.assertEqual(check_layers.tested(self.root), (1, 3))
        self.write("tests/gemm/more/far_test.py", "")
        self.assertEqual(check_layers.tested(self.root), (2, 3))

    def test_clean_tree(self):
        self.write(
            "app/cli/main.cc",
            '#include <fmt/core.h>\n#include "comm/mailbox.h"\n#include "gemm/tile.h"\n#include "plait/version.h"\n',
        )
        self.write("src/library/CMakeLists.txt", "")
        self.write("examples/one.cc", "#include <plait/error.h>\n")
        self.expect()

    def test_violations(self):
        of_a_header = "only plait/ and the standard library"
        for files, *errors in [
            ({"src/gemm/onednn/onednn.cc": '#include <dnnl.h>\n\n  # include "comm/mailbox.h"\n'},
             "src/gemm/onednn/onednn.cc:3: gemm may not include comm"),
            ({"src/gemm/a.cc": "#include <comm/mailbox.h>\n"}, "src/gemm/a.cc:1: gemm may not include comm"),
            # A star is not for others.
            ({"app/cli/verb.h": "", "src/base/a.cc": '#include "cli/verb.h"\n'},
             "src/base/a.cc:1: base may not include cli"),
            ({"app/base/main.cc": ""}, "base: a module of both src/ and app/"),
            ({"src/comm/a.cc": '#include "mailbox.h"\n'},
             'src/comm/a.cc:1: "mailbox.h" is not "module/file.h" or "plait/file.h" of a known module'),
            ({"src/comm/a.cc": '#include "base/gone.h"\n'}, "src/comm/a.cc:1: base/gone.h does not exist"),
            ({"include/plait/tensor.h": "#include <vector>\n#include <fmt/core.h>\n"},
             f"include/plait/tensor.h:2: a public header may not include fmt/core.h: {of_a_header}"),
            ({"include/plait/tensor.h": '#include "base/fd.h"\n'},
             f"include/plait/tensor.h:1: a public header may not include base/fd.h: {of_a_header}"),
            ({"examples/one.cc": '#include "base/fd.h"\n'},
             "examples/one.cc:1: an example may not include base: only public headers"),
            ({"tools/layers.txt": "base: comm\ncomm: gemm\ngemm: base\n"},
             "tools/layers.txt: a cycle: base -> comm -> gemm -> base"),
            ({"src/comm/a.h": '#include "comm/b.h"\n', "src/comm/b.h": '#include "comm/a.h"\n'},
             "headers include one another: comm/a.h -> comm/b.h -> comm/a.h"),
            ({"tools/layers.txt": "base:\ncomm: bsae\n"}, "tools/layers.txt: comm names bsae, which has no line"),
            ({"tools/layers.txt": "base:\ncomm base\nbase:\n"},
             "tools/layers.txt:2: not of the form `module: module ...`", "tools/layers.txt:3: base has a line already"),
        ]:
            with self.subTest(errors):
                self.setUp()
                for path, text in files.items():
                    self.write(path, text)
                self.expect(*errors)

    def test_a_folder_with_a_line_of_its_own_is_a_module(self):
        self.write("tools/layers.txt", LAYERS.replace("gemm:", "comm/modelled: comm base\ngemm:"))
        self.write("src/comm/modelled/clock.h", '#include "comm/mailbox.h"\n')
        self.write("app/cli/main.cc", '#include "comm/modelled/clock.h"\n')
        self.expect()
        self.write("src/comm/wait.cc", '#include "comm/modelled/clock.h"\n')
        self.expect("src/comm/wait.cc:1: comm may not include comm/modelled")

    def test_a_folder_without_a_line_stands_for_the_modules_inside(self):
        rooms = "comm/core: base\ncomm/engines/tcp: comm/core\nops: comm base\ngemm: base\n"
        self.write("tools/layers.txt", "base:\n" + rooms)
        (self.root / "src/comm/mailbox.h").rename(self.root / "src/comm/stray.h")
        self.write("src/comm/core/wait.h", "")
        self.write("src/comm/engines/tcp/slots.h", '#include "comm/core/wait.h"\n')
        self.write("src/ops/op.h", '#include "comm/core/wait.h"\n#include "comm/engines/tcp/slots.h"\n')
        self.expect("src/comm: belongs to no module of tools/layers.txt")
        self.write("src/comm/core/group.cc", '#include "comm/engines/tcp/slots.h"\n')
        self.expect(
            "src/comm: belongs to no module of tools/layers.txt",
            "src/comm/core/group.cc:1: comm/core may not include comm/engines/tcp",
        )

    def test_the_library_knows_nothing_of_the_application(self):
        self.write("tools/layers.txt", LAYERS.replace("gemm:", "measure: base\ngemm: measure"))
        self.write("app/measure/race.h", '#include "base/fd.h"\n')
        self.write("app/cli/main.cc", '#include "measure/race.h"\n')
        self.expect()
        self.write("src/gemm/a.cc", '#include "measure/race.h"\n')
        self.expect("src/gemm/a.cc:1: the library may not include measure, which is of the application")

    def test_source_of_no_target(self):
        self.write("src/CMakeLists.txt", "")
        self.write("src/gemm/CMakeLists.txt", "SOURCES\n  a.cc  # b.cc\n  old/${set}.cc ../base/fd.cc)\n")
        for path in ("gemm/a.cc", "gemm/b.cc", "gemm/old/c.cc", "gemm/old/d.cu", "base/fd.cc", "gemm/fd.cc"):
            self.write(f"src/{path}", "")
        self.expect(
            "src/gemm/b.cc: no target of src/ compiles it",
            "src/gemm/fd.cc: no target of src/ compiles it",
            "src/gemm/old/d.cu: no target of src/ compiles it",
        )

    def test_unknown_folder(self):
        self.write("src/ops/a.cc", "")
        self.write("src/a.cc", "")
        self.expect(
            "src: belongs to no module of tools/layers.txt",
            "src/ops: belongs to no module of tools/layers.txt",
        )

    def test_public_header_adapts_a_library(self):
        self.write("include/plait/mpi.h", "#include <mpi.h>\n#include <vector>\n")
        self.expect()
        self.write("include/plait/tensor.h", "#include <mpi.h>\n")
        self.expect(
            "include/plait/tensor.h:1: a public header may not include mpi.h: only plait/ and the standard library"
        )


if __name__ == "__main__":
    unittest.main()
