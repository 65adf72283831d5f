"""plait info --why: the backends of a product, and why one of them is chosen."""

import unittest

from info_case import InfoCase


class WhyProductTest(InfoCase):
    def test_the_backends_of_a_product(self):
        found = self.json("--why", "m=8 n=4096 k=4096 x=f32 w=f32 out=bf16")
        self.assertEqual(found["problem"],
                         {"product": "m=8 n=4096 k=4096 x=f32 w=f32 out=bf16", "backend": None})
        walk = found["walk"]
        self.assertEqual([(step["name"], step["operand"]) for step in walk],
                         [("amx", "bf16"), ("vector", "bf16"), ("vector", "f32"),
                          ("reference", "f32")])
        self.assertFalse(walk[0]["can"])
        able = [step for step in walk if step["can"]]
        self.assertEqual((able[0]["name"], found["chosen"]), ("vector", "vector"))
        self.assertEqual(able[0]["answer"], "chosen: the first usable one")
        self.assertEqual({step["answer"] for step in able[1:]},
                         {"usable, but vector (f32) comes first"})

    def test_a_backend_that_was_asked_for(self):
        product = ["m=8,n=4", "k=4", "x=f32"]
        page = self.plait("info", "--why", *product, "backend=vector").stdout
        self.assertTrue(page.startswith("The backend for m=8 n=4 k=4 x=f32 w=bf16 out=bf16, requested: "
                                        "vector\n\n  amx (bf16)       no   "))
        self.assertIn("\n  reference (f32)  yes  usable, but vector was requested\n", page)
        self.assertTrue(page.endswith("\nIt is vector.\n"))
        self.assertIsNone(self.json("--why", *product, "backend=amx", status=1)["chosen"])

    def test_a_quantised_weight(self):
        found = self.json("--why", "m=1 n=4 k=256 w=s8:group=128")
        self.assertEqual(found["problem"]["product"],
                         "m=1 n=4 k=256 x=bf16 w=s8:group=128 out=bf16")
        self.assertIsNotNone(found["chosen"])

    def test_a_backend_that_has_two_kernels(self):
        found = self.json("--why", "m=8 n=4 k=4 x=f32 backend=vector", status=None)
        mine = [step for step in found["walk"] if step["name"] == "vector"]
        self.assertEqual([step["operand"] for step in mine], ["bf16", "f32"])
        self.assertFalse(mine[0]["can"])
        self.assertTrue(mine[1]["can"])
        self.assertEqual(found["chosen"], "vector")


if __name__ == "__main__":
    unittest.main()
