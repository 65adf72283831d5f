"""Mixtures of experts: each rank has some experts, and rows go to theirs and come back.

    experts = plait.torch.ExpertParallel.share(gate_up, down)  # [E, 2F, H] and [E, H, F] of all
    y = experts(hidden, top_k_index, top_k_weights)            # [T, H], [T, k], [T, k]

A call sends each row once to each rank of its experts, multiplies the rows of own experts, applies
the activation, multiplies again, sends results back, and adds each row's results up, times their
weights, in the order of its slots, in f32, rounded once. All ranks make each call, with or without
rows.

The bits of results, and of the gradients of rows and of their weights, are those of one rank with
all experts: for any number of ranks, any placement, and any rows beside a row. The gradient of an
expert's weight is the sum over its rows, those of rank 0 first and each rank's in their order: one
rank's bits where ranks have blocks of the rows in the order of ranks.
"""

from plait.torch.experts.call import Silu, Swiglu
from plait.torch.experts.layer import ExpertParallel, expert_parallel

__all__ = ["ExpertParallel", "Silu", "Swiglu", "expert_parallel"]
