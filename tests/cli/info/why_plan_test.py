"""plait info --why: the predicted times of all plans, and the origin of the choice."""

import json
import re
import unittest

from tune_case import TuneCase


class WhyTest(TuneCase):
    WHY = "op=matmul-all-reduce m=2048 n=8192 k=8192 ranks=2 link=1gbit,5us threads=1"

    def test_every_plan_has_its_parts(self):
        self.give_profile()
        found = json.loads(self.plait("info", "--json", "--why", self.WHY).stdout)
        self.assertEqual(found["problem"], "op=matmul_all_reduce m=2048 n=8192 k=8192 x=bf16 w=bf16 out=bf16 wire=f32 "
                                           "ranks=2 threads=1 transport=shm link=1gbit,5us")
        plans = {one["plan"]: one for one in found["plans"]}
        self.assertTrue({"serial", "fused", "pipelined parts=8", "pipelined parts=8 first=25 last=100"} <= set(plans))
        for one in plans.values():
            parts = one["product_ns"] + one["work_ns"] + one["waited_ns"]
            self.assertAlmostEqual(one["predicted_ns"] / parts, 1)
            self.assertEqual(one["gain_ns"], plans["serial"]["predicted_ns"] - one["predicted_ns"])
            self.assertGreater(one["doubt_ns"], 0)
        self.assertEqual([one["predicted_ns"] for one in found["plans"]],
                         sorted(one["predicted_ns"] for one in found["plans"]))
        self.assertLess(plans[found["chosen"]]["predicted_ns"], 0.97 * plans["serial"]["predicted_ns"])

    def test_the_page_says_why(self):
        page = self.plait("info", "--why", *self.WHY.split()).stdout
        self.assertIn(" *", page)
        self.assertRegex(page, r'It is "fused.*", by the cost model: \d\.\d+ times as fast as serial, a gain of '
                               r"\d+\.\d % of serial's time\.\nThe model's error is up to \d+\.\d % of serial's "
                               r"time: 10 % of the time of copies, sums and\nwaits in both plans, or 1 % of serial's "
                               r"time if that is more\.\n")
        self.assertIn(f"It has no measured plan in {self.cache}.\n", page)
        self.assertTrue(page.endswith("The profile is built in, for no particular machine; plait tune --profile "
                                      "measures this machine.\n"), page)
        page = self.plait("info", "--why", "matmul-all-gather m=8 n=8 k=8").stdout
        self.assertIn('It is "serial", by the cost model; no plan is faster.\n', page)
        page = self.plait("info", "--why", "matmul-reduce-scatter m=64 n=4096 k=65536").stdout
        self.assertIn('It is "serial", by the cost model; "fused', page)
        self.assertRegex(page, r'" would gain 0\.\d % of serial\'s time\.\nThe model\'s error is up to 1\.0 % of ')

    def test_what_is_not_said_is_as_a_program_finds_it(self):
        self.environment.update(OMP_NUM_THREADS="3", PLAIT_TRANSPORT="threads", PLAIT_LINK="1gbit,5us")
        found = json.loads(self.plait("info", "--json", "--why", "op=matmul-all-reduce m=64 n=64 k=64").stdout)
        self.assertEqual(found["problem"], "op=matmul_all_reduce m=64 n=64 k=64 x=bf16 w=bf16 out=bf16 wire=f32 "
                                           "ranks=2 threads=3 transport=threads link=1gbit,5us")
        found = json.loads(self.plait("info", "--json", "--why", self.WHY + " transport=shm").stdout)
        self.assertIn(" threads=1 transport=shm link=1gbit,5us", found["problem"])
        self.environment.update(PLAIT_WIRE="bf16", PLAIT_THREADS="2", PLAIT_BACKEND="reference")
        found = json.loads(self.plait("info", "--json", "--why", "op=matmul-all-reduce m=64 n=64 k=64").stdout)
        self.assertIn(" wire=bf16 ranks=2 threads=2 backend=reference transport=threads ", found["problem"])
        found = json.loads(self.plait("info", "--json", "--why", "op=matmul-all-gather m=64 n=64 k=64 x=f32").stdout)
        self.assertIn(" wire=f32 ", found["problem"])
        del self.environment["PLAIT_TRANSPORT"]
        for hosts, transport in (1, "shm"), (2, "tcp"):
            problem = f"op=matmul-all-reduce m=64 n=64 k=64 hosts={hosts}"
            found = json.loads(self.plait("info", "--json", "--why", problem).stdout)
            self.assertIn(f" transport={transport} ", found["problem"])

    def test_whether_sums_are_those_of_one_rank(self):
        for words, refusal in [
                ("ranks=4 k=4096", None),
                ("ranks=3 k=6144", "k is shared by another number of ranks than 2, 4, 8 or 16"),
                ("ranks=8 k=2048", "the share of k is shorter than a leaf"),
                ("ranks=8 k=13696", "the share of k is not a multiple of 32"),
                ("ranks=4 k=11008 w=s8:group=128", "the share of k is not a multiple of the weight's group"),
                ("ranks=4 k=4098", "the ranks' shares of k differ"),
                ("ranks=4 k=4096 wire=bf16", "the wire rounds the partial sum of each rank")]:
            problem = "op=matmul-all-reduce m=64 n=64 " + words
            found = json.loads(self.plait("info", "--json", "--why", problem).stdout)
            self.assertEqual((found["as_on_one_rank"], found["sum_tree"]), (refusal is None, refusal))
            page = self.plait("info", "--why", problem).stdout
            self.assertIn(f"Its sums have other bits on another number of ranks: {refusal}.\n" if refusal else
                          "Its sums have the same bits as on one rank.\n", page)

    def test_a_link_that_cannot_be_read(self):
        self.environment["PLAIT_LINK"] = "rope"
        self.assert_says(self.plait("info", "--why", "op=matmul-all-reduce m=64 n=64 k=64"), 2,
                         'plait info: PLAIT_LINK: the link "rope" is not like "25gbit,5us": a bandwidth, a latency, '
                         "or both")

    def test_calls_that_are_no_operators(self):
        for words in ("matmul-all-to-all m=64 n=96 k=64", "m=64 n=96 op=all_to_all_matmul k=64 x=f32",
                      "experts m=8 n=768 k=2048 columns=128", "op=matmul-all-gather-columns m=1 n=64 k=8"):
            page = self.plait("info", "--why", words).stdout
            self.assertIn('It is "fused", the default: the cost model knows nothing of such calls.', page)
            found = json.loads(self.plait("info", "--why", words, "--json").stdout)
            self.assertEqual((found["chosen"], found["source"], found["as_on_one_rank"], found["plans"]),
                             ("fused", "default", True, []))
            self.assertIn(f"The plan for {found['problem']}\n", page)
            self.assertEqual(*re.findall(r" (?:x|wire)=(\w+)", found["problem"]))  # as a program's key has it
        self.environment["PLAIT_PLAN"] = "pipelined axis=rows parts=7"
        for words, plan in (("experts m=8 n=9 k=9 columns=8", "fused"),
                            ("matmul-all-gather-columns m=8 n=8 k=8", "pipelined parts=7")):
            self.assertEqual(json.loads(self.plait("info", "--why", words, "--json").stdout)["chosen"], plan)
        for words in ("matmul-top", "op=matmul-top m=1", "op=matmul_cross_entropy", "matmul_log_probs m=8"):
            self.assertIn(" has one plan: the product, then one message", self.plait("info", "--why", words).stdout)

    def test_what_it_cannot_explain(self):
        for words, sentence in [
            ("op=foo m=8 n=8 k=8", "problem: op=foo is not an operator; write, for example, op=matmul_all_reduce"),
            ("experts m=8 n=8 k=8", "problem: op=experts needs columns=, the number of experts"),
            ("matmul-all-to-all m=8 n=8", 'problem: "op=matmul-all-to-all m=8 n=8" has no k='),
            ("op=matmul-all-reduce m=8 n=8 k=8 w=s9",
             "w=s9 is not a weight; give, for example, bf16, bf16:plain, s8:channel or s8:group=128"),
            ("op=matmul-all-reduce m=8", 'problem: "op=matmul-all-reduce m=8" has no n='),
            ("op=matmul-all-reduce m=8 n=8 k=8 racks=2",
             "problem: unknown word racks; known are op, m, n, k, x, w, out, wire, ranks, hosts, threads, "
             "backend, transport, link and columns"),
            ("op=matmul-all-reduce m=8 n=8 k=8 hosts=3", "problem: ranks=2 cannot run on 3 hosts"),
            ("op=matmul-all-reduce m=8 n=8 k=8 link=1e300gbit",
             'the link "1e300gbit" has a bandwidth of more than 1e15 bytes/s'),
            ("op=matmul-all-reduce m=8 n=8 k=8 link=1gbit,2h",
             'the link "1gbit,2h" has a latency of more than an hour'),
        ]:
            self.assert_says(self.plait("info", "--why", words), 2, f"plait info: {sentence}")


if __name__ == "__main__":
    unittest.main()
