"""plait tune --from: the problems of a timeline, for the ranks of the timeline."""

import json
import re
import unittest

from tune_case import SMALL, TuneCase


class TuneTimelineTest(TuneCase):
    def test_from_a_timeline(self):
        self.give_profile()
        timeline = self.folder / "trace.json"
        traced = self.plait("trace", "all-gather-matmul", *SMALL[:4], "--k", 64, "--ranks", 3, "--weight", "plain",
                            "--trace", timeline)
        self.assertEqual((traced.returncode, traced.stderr), (0, ""))
        self.tune("--from", timeline, *SMALL[6:], "--transport", "threads")
        ((key, *_),) = self.entries()
        # Three ranks have 43, 43 and 42 columns of the 128.
        self.assertIn(" w=bf16:plain ", key)
        self.assertTrue(key.startswith("op=all_gather_matmul m=32 n=128 k=64 "), key)
        self.assertIn(" ranks=3 ", key)

    def test_a_timelines_ranks_are_those_that_it_was_of(self):
        self.give_profile()
        timeline = self.folder / "trace.json"
        call = "call op={} m=32 n=64 k=64 ranks=2 threads=1 transport=threads"
        timeline.write_text(json.dumps({"traceEvents": [
            {"pid": rank, "name": call.format(op)} for rank in (0, 1) for op in ("matmul", "all_gather_matmul")]}))
        self.tune("--from", timeline, "--plans", 1, "--seconds", 0.05)
        ((key, *_),) = self.entries()
        self.assertIn(" ranks=2 threads=1 transport=threads", key)
        timeline.write_text(json.dumps({"traceEvents": [{"pid": 0, "name": call.format("matmul").replace("ranks=2",
                                                                                                        "ranks=1")}]}))
        self.assert_says(self.plait("tune", "--from", timeline), 2,
                         f"plait tune: --from {timeline} has no operator but matmul, which has one plan")

    def test_a_timeline_of_other_hosts_is_not_measured_on_these(self):
        self.give_profile()
        timeline = self.folder / "trace.json"
        call = "call op=all_gather_matmul m=32 n=64 k=64 ranks=2 threads=1 hosts=2 transport=threads"
        timeline.write_text(json.dumps({"traceEvents": [{"pid": rank, "name": call} for rank in (0, 1)]}))
        self.assert_says(self.plait("tune", "--from", timeline), 2,
                         f"plait tune: --from {timeline} has problems of ranks on 2 hosts, but these ranks run on 1; "
                         "start plait tune on the same number of hosts")

    def test_the_link_of_a_timeline(self):
        self.give_profile()
        timeline = self.folder / "trace.json"
        call = "call op=all_gather_matmul m=32 n=64 k=64 ranks=2 threads=1 transport=threads"
        effort = ("--plans", 1, "--seconds", 0.05)

        def write(rest):
            timeline.write_text(json.dumps({"traceEvents": [{"pid": rank, "name": call + rest} for rank in (0, 1)]}))

        def links():
            return [key.split()[-1] for key, *_ in self.entries()]

        write(" link=10gbit,20us")
        self.assert_says(self.plait("tune", "--from", timeline, "--link", "1gbit,5us", *effort), 2,
                         f"plait tune: --from {timeline}: all_gather_matmul was called over an emulated link, 10 "
                         "Gbit/s, 20 us, but --link is an emulated link, 1 Gbit/s, 5 us")
        self.assertFalse(self.cache.exists())
        self.tune("--from", timeline, "--link", "10gbit,20us", *effort)
        self.assertEqual(links(), ["link=10gbit,20us"])
        # A timeline without a link may be tuned over any link.
        write("")
        self.tune("--from", timeline, "--link", "1gbit,5us", *effort)
        self.assertEqual(sorted(links()), ["link=10gbit,20us", "link=1gbit,5us"])

    def test_calls_of_a_timeline_are_paired_before_they_are_compared(self):
        self.give_profile()
        timeline = self.folder / "trace.json"

        def write(*ranks):
            timeline.write_text(json.dumps({"traceEvents": [
                {"pid": rank, "name": f"call op=all_gather_matmul m={m} n={n} k=64 ranks=2"}
                for rank, calls in enumerate(ranks) for m, n in calls]}))

        # Shares of 5, 6 and 7 columns: one call differs on the first rank, another one on the others.
        write([(32, 3), (32, 3), (32, 4)], [(32, 2), (32, 3), (32, 3)])
        self.tune("--from", timeline, *SMALL[6:], "--transport", "threads")
        self.assertEqual([re.search(r"n=(\d+)", key)[1] for key, *_ in self.entries()], ["5", "6", "7"])
        for ranks, sentence in [
            (([(8, 3)], [(8, 3), (8, 4)]), "rank 1 has 2 calls and rank 0 has 1"),
            (([(8, 3)], [(9, 3)]), "call 1 is all_gather_matmul of 8 rows on rank 0 and all_gather_matmul of 9 rows on "
                                   "rank 1"),
            (([(8, "x")], [(8, 3)]), "problem: n=x is not a whole number from 0 to 268435456"),
        ]:
            write(*ranks)
            self.assert_says(self.plait("tune", "--from", timeline), 2, f"plait tune: --from {timeline}: {sentence}")

    def test_a_timeline_of_groups_beside_each_other(self):
        self.give_profile()
        timeline = self.folder / "trace.json"
        call = "call op=matmul_all_reduce m=32 n=64 k={} x=bf16 w=bf16 out=bf16 wire=f32 ranks=2 transport=threads"

        def write(*shares):
            events = [{"name": call.format(k), "pid": rank} for rank, k in enumerate(shares)]
            # A layer's own product, which has nothing to tune.
            events += [{"name": "call op=matmul m=8 n=8 k=" + str(rank + 1) + " ranks=2", "pid": rank}
                       for rank, _ in enumerate(shares)]
            timeline.write_text(json.dumps({"traceEvents": events}))
        write(48, 48, 48, 48)
        self.tune("--from", timeline, "--seconds", 0.05, "--plans", 1)
        self.assertEqual([" n=64 k=96 " in key for key, *_ in self.entries()], [True])
        write(48, 40, 48, 40)
        self.assert_says(self.plait("tune", "--from", timeline), 2,
                         f"plait tune: --from {timeline}: groups of 2 ranks call matmul_all_reduce with uneven shares, "
                         "which cannot be assigned to groups")
        write(48, 48, 48)
        self.assert_says(self.plait("tune", "--from", timeline), 2,
                         f"plait tune: --from {timeline} has 3 ranks, and matmul_all_reduce was called by 2")

    def test_timelines_of_strange_calls(self):
        call = "call op=matmul_all_reduce m=32 n=64 k=64 x=bf16 w={} out=bf16 wire=f32 ranks=2 transport={}"
        def refusal(*calls):
            file = self.folder / "timeline"
            file.write_text(json.dumps({"traceEvents": [{"name": call.format(*one), "pid": rank}
                                                        for rank in (0, 1) for one in calls]}))
            result = self.plait("tune", "--from", file)
            self.assertEqual(result.returncode, 2)
            return result.stderr.replace(str(file), "FILE")
        self.assertIn("--from FILE: w=banana is not a weight", refusal(("banana", "threads")))
        self.assertIn("--from FILE: problem: w= is not followed by a name of letters, digits and _-.:=",
                      refusal(("bf16\nevil", "threads")))
        self.assertIn("--from FILE has calls of different ranks: op=", refusal(("bf16", "threads"), ("f32", "shm")))
        self.assertFalse(self.cache.exists())


if __name__ == "__main__":
    unittest.main()
