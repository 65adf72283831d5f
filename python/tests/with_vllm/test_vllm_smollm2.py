"""SmolLM2-135M-Instruct, whose 9 heads three ranks share, in vLLM.

PLAIT_TEST_SMOLLM2 is the folder that `examples/python/smollm2.py --convert` prints.
"""

import os
import re
import time
from pathlib import Path

from test_vllm_engine import LIMIT, end, finish, launch, only_in_its_own_run

PROGRAM = """
import os
import sys

from vllm import LLM, SamplingParams


def main():
    llm = LLM(
        os.environ["PLAIT_TEST_SMOLLM2"],
        tensor_parallel_size=int(sys.argv[1]),
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        kv_cache_memory_bytes=2**26,
        worker_extension_cls="plait.vllm.WorkerReport",
    )
    asked = [{"role": "user", "content": "Which animals give us milk? Answer in a sentence."}]
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    answer = llm.chat(asked, sampling, use_tqdm=False)[0].outputs[0]
    print(list(answer.token_ids))
    print(answer.text)
    print(llm.collective_rpc("plait_report")[0])


if __name__ == "__main__":
    main()
"""


@only_in_its_own_run
def test_three_ranks_answer_as_one_process(tmp_path: Path) -> None:
    program, deadline = tmp_path / "program.py", time.monotonic() + LIMIT
    program.write_text(PROGRAM)
    cores = sorted(os.sched_getaffinity(0))
    of_rank = "|".join(str(cores[rank % len(cores)]) for rank in range(3))

    def answer(ranks: int, **variables: str) -> tuple[str, str]:
        engine = launch([str(program), str(ranks)], tmp_path / f"of_{ranks}", variables)
        try:
            return finish(engine, deadline)
        finally:
            end(engine)

    tokens, report = answer(3, VLLM_CPU_OMP_THREADS_BIND=of_rank)
    expected, _ = answer(1, VLLM_CPU_OMP_THREADS_BIND=str(cores[0]), VLLM_PLUGINS="")
    assert tokens == expected
    assert "milk" in report
    for layers in ("30 QKVParallelLinear", "30 MergedColumnParallelLinear", "60 RowParallelLinear"):
        assert re.search(rf"^{layers}: [1-9]\d+ calls served by plait$", report, re.MULTILINE)
