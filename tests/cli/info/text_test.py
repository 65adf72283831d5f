"""plait info: lines that fit a terminal, and reasons where something is absent."""

import re
import unittest

from info_case import InfoCase


class TextTest(InfoCase):
    def test_people_get_lines_that_fit_and_no_colours(self):
        page = self.plait("info").stdout
        self.assertLessEqual(max(map(len, page.splitlines())), 100)
        self.assertNotIn("\x1b", page)
        labels = re.findall(r"^(\S.*?)  ", page, re.MULTILINE)
        self.assertEqual(labels, ["Host", "Processor", "Caches", "NUMA", "Memory", "Huge pages",
                                  "Usable", "Place", "Network", "Settings", "Transports", "Backends", "GPUs"])
        self.assertRegex(page, r"\n {12}reference  yes  f32\nGPUs ")

    def test_backends_have_reasons_where_they_are_absent(self):
        backends = self.json()["backends"]
        kernels = {"amx": ["bf16"], "vector": ["bf16", "f32"], "reference": ["f32"]}
        self.assertEqual([one["name"] for one in backends], list(kernels))
        page = " ".join(self.plait("info").stdout.split())
        for one in backends:
            self.assertEqual(one["available"], bool(one["operands"]))
            self.assertEqual(sorted([*one["operands"], *one["refusals"]]), kernels[one["name"]])
            for reason in one["refusals"].values():
                self.assertIn(reason, page)

    def test_it_says_whether_the_network_is_trusted_and_shows_no_secret(self):
        def summary():
            return " ".join(self.plait("info").stdout.split())
        self.environment.pop("PLAIT_SECRET", None)
        self.assertIn("the network is trusted, because PLAIT_SECRET is not set", summary())
        self.environment["PLAIT_SECRET"] = "0123456789abcdef"
        self.assertIn("each rank proves that it knows PLAIT_SECRET", summary())
        self.assertNotIn("0123456789abcdef", self.plait("info").stdout + self.plait("info", "--json").stdout)
        self.environment["PLAIT_SECRET"] = "short"
        self.assertIn("refused: PLAIT_SECRET has 5 characters; it needs 16 or more, so that it can't be guessed",
                      summary())


if __name__ == "__main__":
    unittest.main()
