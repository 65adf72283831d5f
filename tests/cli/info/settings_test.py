"""plait info --settings: settings and their origins."""

import re
import unittest
from pathlib import Path

from settings_case import SettingsCase

ROOT = Path(__file__).resolve().parents[3]


class SettingsTest(SettingsCase):
    def test_defaults(self):
        self.environment["XDG_CACHE_HOME"] = "/cache"
        found = self.json("--settings")
        self.assertEqual(list(found), ["file", "settings", "remarks"])
        self.assertEqual((found["file"], self.remarks()), (None, []))
        self.assertEqual({one["from"] for one in found["settings"]}, {"default"})
        values = {one["name"]: one["value"] for one in found["settings"]}
        self.assertEqual(values, {
            "plan": "auto", "customized": "none", "column_backward": "false",
            "recompute_all_gather": "true", "aligned_packing": "true", "wire": "auto",
            "threads": "auto", "backend": "auto", "plan_cache": "/cache/plait/plans",
            "tune_online": "auto", "transport": "auto", "link": "none", "timeout": "600s",
            "lost_after": "1.5s", "wait": "spin=20us,yield=200us", "rendezvous": "auto",
            "interface": "all", "ports": "any", "host": "none", "secret": "none",
            "plugin_path": "auto", "isa": "auto"})

    def test_every_variable_sets_its_setting(self):
        values = {"plan": "pipelined parts=3", "customized": "[1,2,3]=serial",
                  "column_backward": "true", "recompute_all_gather": "false",
                  "aligned_packing": "false", "wire": "f16", "threads": "2", "backend": "vector",
                  "plan_cache": "/plans", "tune_online": "true", "transport": "shm",
                  "link": "1gbit", "timeout": "5s", "wait": "spin=1us", "lost_after": "3s",
                  "rendezvous": "node1:29600", "interface": "eth0", "ports": "1-9", "host": "b",
                  "plugin_path": "/plugins", "isa": "sse2", "secret": "0123456789abcdef"}
        for one in self.json("--settings")["settings"]:
            self.environment[one["variable"]] = values[one["name"]]
        values["secret"] = "(not shown)"
        self.assertEqual(self.found(), {name: (value, f"PLAIT_{name.upper()}")
                                        for name, value in values.items()})

    def test_a_backend_that_there_is_not(self):
        self.environment["PLAIT_BACKEND"] = "abacus"
        (remark,) = self.remarks()
        self.assertRegex(remark, r"^backend = abacus \(PLAIT_BACKEND\): there is no such backend; "
                                 r"there are .*\bvector\b")
        self.environment["PLAIT_BACKEND"] = "reference"
        self.assertEqual(self.remarks(), [])

    def test_a_file_and_the_environment(self):
        self.write("coc_parallel_num = 4\n[coc_cfgs]\nk_min = 1024\nmatmul_soc_friendly = false\n")
        found = self.found()
        self.assertEqual(found["plan"], ("pipelined parts=4", f"{self.file}:1"))
        self.assertEqual(found["aligned_packing"], ("false", f"{self.file}:4"))
        self.environment |= {"USE_COC_FUSED_KERNEL": "1", "PLAIT_ALIGNED_PACKING": "1"}
        found = self.found()
        self.assertEqual(found["plan"], ("fused", "USE_COC_FUSED_KERNEL"))
        self.assertEqual(found["aligned_packing"], ("true", "PLAIT_ALIGNED_PACKING"))

    def test_people_get_a_table(self):
        page = self.plait("info", "--settings").stdout
        self.assertTrue(page.startswith("PLAIT_CONFIG names no file.\n\nsetting  "))
        self.write("k_max = 1\n[customized]\n'[16384, 5120, 1920]' = 8\n'[1, 2, 3]' = 1\n")
        page = self.plait("info", "--settings").stdout
        self.assertTrue(page.startswith(f"Settings from {self.file} and the environment.\n\n"))
        self.assertRegex(page, rf"\ncustomized +\[1,2,3\]=serial +{self.file}:2\n"
                               r" +\[16384,5120,1920\]=pipelined parts=8\n")
        self.assertIn("\ntimeout           600s ", page)
        self.assertIn(f"\n{self.file}:1: k_max has no effect: plait pads packed weights for every k\n", page)

    def test_variables_that_nothing_reads_are_named(self):
        self.environment |= {"COC_PARALEL_NUM": "4", "PLAIT_TIMEOT": "5s"}
        sentences = ["COC_PARALEL_NUM: plait does not read it; did you mean COC_PARALLEL_NUM?",
                     "PLAIT_TIMEOT: plait does not read it; did you mean PLAIT_TIMEOUT?"]
        self.assertEqual(self.remarks(), sentences)
        page = self.plait("info", "--settings").stdout
        for sentence in sentences:
            self.assertIn(f"\n{sentence}\n", page)

    def test_bad_values_that_only_programs_read_are_refused(self):
        for name, value, sentence in [
            ("PLAIT_TRANSPORT", "foo", "there is no transport foo; there are threads, shm, tcp, mpi, ucx"),
            ("PLAIT_LINK", "rope", 'PLAIT_LINK: the link "rope" is not like "25gbit,5us"'),
            ("PLAIT_TIMEOUT", "abc", "PLAIT_TIMEOUT=abc is not a duration"),
            ("PLAIT_ISA", "avx", "PLAIT_ISA=avx is none of sse2, avx2, avx512, avx512-bf16, amx"),
            ("PLAIT_RENDEZVOUS", "node1", "PLAIT_RENDEZVOUS=node1 is not like HOST:PORT"),
        ]:
            self.environment[name] = value
            result = self.plait("info", "--settings")
            self.assertEqual((result.returncode, result.stdout), (2, ""), name)
            self.assertIn(sentence, result.stderr)
            del self.environment[name]

    def test_what_cannot_be_read(self):
        self.write("\nplam = 'fused'\n")
        self.assert_says(self.plait("info", "--settings"), 2,
                         f"plait info: {self.file}:2: there is no setting plam; did you mean plan?")
        self.write("threads = 'all'\n")
        self.assert_says(self.plait("info", "--settings"), 2, f"plait info: {self.file}:1: threads "
                         '= "all" is not a whole number from 0 to 1024')
        self.file.unlink()
        self.assert_says(self.plait("info", "--settings"), 1, "plait info: PLAIT_CONFIG: cannot "
                         f"read {self.file}: No such file or directory")
        self.assert_says(self.plait("info", "--settings", "--why"), 2,
                         "plait info: --settings, --meet and --why cannot be combined")


class DocumentsTest(SettingsCase):
    def test_every_file_in_them_can_be_loaded(self):
        for document in ("docs/reference/settings.md", "docs/guides/from-mindspeed-coc.md"):
            files = re.findall(r"^```toml\n(.*?)^```$", (ROOT / document).read_text(),
                               re.MULTILINE | re.DOTALL)
            self.assertTrue(files, document)
            for text in files:
                self.write(text)
                self.assertNotEqual(self.found()["plan"], ("auto", "default"))

    def test_every_setting_is_in_the_table(self):
        page = (ROOT / "docs/reference/settings.md").read_text()
        rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
        settings = {one["name"]: one["variable"] for one in self.json("--settings")["settings"]}
        of_environment = {"transport", "link", "timeout", "lost_after", "wait", "rendezvous", "interface", "ports",
                          "host", "secret", "plugin_path", "isa"}
        self.assertEqual(rows, {name: variable for name, variable in settings.items()
                                if name not in of_environment})


if __name__ == "__main__":
    unittest.main()
