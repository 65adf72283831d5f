"""plait bench: ranks that share cores."""

import json
import unittest

from operator_case import OperatorCase


class OversubscriptionTest(OperatorCase):
    def test_ranks_that_share_cores_measure_turns(self):
        cores = json.loads(self.plait("info", "--json").stdout)["processor"]["cores"]
        words = ("matmul-all-reduce", *self.IN_THREADS, "--threads", cores)
        text = self.bench(*words)
        self.assertRegex(text, rf"\n2 ranks of {cores} threads? share {cores} cores?: the ranks are oversubscribed")
        self.assertNotRegex(text, "(The|No) plan")
        self.assertRegex(self.bench(*words, "--timed-product"), "\n(The|No) plan")


if __name__ == "__main__":
    unittest.main()
