"""plait info: which variables are set, and which of them plait does not read."""

import re
import unittest
from pathlib import Path

from info_case import InfoCase
from settings_case import SettingsCase

ROOT = Path(__file__).resolve().parents[3]


class SetVariablesTest(InfoCase):
    def test_which_of_its_variables_are_set(self):
        for name in [name for name in self.environment if name.startswith("PLAIT_")]:
            del self.environment[name]
        self.assertEqual(self.json()["settings"], {})
        self.assertIn("\nSettings    no variable PLAIT_... is set\n", self.plait("info").stdout)
        for name, value, sentence in [
            ("PLAIT_PLAN", "fuzed", "PLAIT_PLAN=fuzed: fuzed is neither a schedule"),
            ("PLAIT_TRANSPORT", "foo", "there is no transport foo; there are threads, shm, tcp, mpi, ucx"),
            ("PLAIT_LINK", "rope", 'PLAIT_LINK: the link "rope" is not like "25gbit,5us"'),
            ("PLAIT_TIMEOUT", "abc", "PLAIT_TIMEOUT=abc is not a duration"),
            ("PLAIT_ISA", "avx", "PLAIT_ISA=avx is none of sse2, avx2, avx512, avx512-bf16, amx"),
        ]:
            self.environment[name] = value
            self.assertIn(f"{name}={value}\n              refused: {sentence}", self.plait("info").stdout)
            self.assertIn(sentence, self.json()["refused_settings"])
            del self.environment[name]
        self.assertEqual(self.json()["refused_settings"], "")
        self.environment |= {"PLAIT_TIMEOUT": "5s", "PLAIT_LINK": "1gbit,5us", "PLAITED": "no"}
        self.assertEqual(self.json()["settings"], {"PLAIT_LINK": "1gbit,5us", "PLAIT_TIMEOUT": "5s"})
        self.assertIn("\nSettings    PLAIT_LINK=1gbit,5us\n            PLAIT_TIMEOUT=5s\n",
                      self.plait("info").stdout)


class UnknownVariablesTest(SettingsCase):
    def test_what_nobody_reads(self):
        self.environment |= {"PLAIT_TIMEOT": "5s", "USE_COC_FUSED_KERNE": "1", "PLAIT_LINK": "1ms",
                             "PLAIT_XYLOPHONE": "1"}
        unknown = self.json()["unknown_settings"]
        self.assertEqual({name: why for name, why in unknown.items() if name != "PLAIT_TEST_MARK"}, {
            "PLAIT_TIMEOT": "plait does not read it; did you mean PLAIT_TIMEOUT?",
            "USE_COC_FUSED_KERNE": "plait does not read it; did you mean USE_COC_FUSED_KERNEL?",
            "PLAIT_XYLOPHONE": "plait does not read it"})
        self.assertIn("            PLAIT_TIMEOT=5s\n"
                      "              plait does not read it; did you mean PLAIT_TIMEOUT?\n",
                      self.plait("info").stdout)

    def test_all_that_the_sources_read_is_known(self):
        sources = [file.read_text() for roof in ("src", "app")
                   for file in (ROOT / roof).glob("**/*") if file.is_file()]
        read = set(re.findall(r'"(PLAIT_[A-Z_]*[A-Z])"', "".join(sources)))
        self.assertGreater(len(read), 20)
        self.environment |= {name: "1" for name in read}
        self.assertEqual(set(self.json()["unknown_settings"]), {"PLAIT_TEST_MARK"})


if __name__ == "__main__":
    unittest.main()
