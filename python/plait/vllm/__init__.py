"""vLLM's tensor-parallel layers on CPUs, with the communication of linear layers hidden.

Nothing is called: where plait is installed beside vLLM, vLLM loads it as a plugin in each of its
processes, and makes plait's layers in the place of its own. VLLM_PLUGINS="" leaves it out.

    RowParallelLinear                                               product and sum over the ranks
    ColumnParallelLinear, MergedColumnParallelLinear, QKVParallelLinear      the product
    LogitsProcessor                                                 the largest logits alone
    experts that the ranks share (enable_expert_parallel)           the products, and the exchange
                                                                    of data-parallel ranks' rows
    CpuCommunicator                                                 all_gatherv, reduce_scatterv

A layer that plait does not serve works by vLLM's own code, and one sentence a class and a reason is
logged. Weights are packed once vLLM has loaded them, in the place of vLLM's own packing.

    llm = LLM(..., worker_extension_cls="plait.vllm.WorkerReport")
    print(llm.collective_rpc("plait_report")[0])

Plans are automatic, or as the environment says: PLAIT_PLAN, PLAIT_CONFIG and so on.
"""

from plait.vllm.report import Report, Row, WorkerReport, report
from plait.vllm.swap import disable, enable

__all__ = ["Report", "Row", "WorkerReport", "disable", "enable", "report"]
