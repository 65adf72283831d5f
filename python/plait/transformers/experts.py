"""Experts of models, in plait's layer: on several ranks, or on one.

Importing plait.transformers registers two names. `DistributedConfig(ep_implementation="plait")`
brings tokens to the ranks of their experts, which enable() chooses too where a program leaves the
choice to transformers. `experts_implementation="plait"` is for one rank, and gives the same bits.
"""

import logging
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from transformers.activations import ACT2FN
from transformers.distributed.expert_parallel import (
    AutoEP,
    EPImplementation,
    EPImplementationInterface,
)
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

import plait.torch
from plait.torch.context import context_alone
from plait.torch.experts import in_graphs
from plait.torch.experts.call import Call, Stacks
from plait.torch.experts.checks import check_operands
from plait.torch.experts.layer import apply
from plait.torch.experts.placement import Placement
from plait.torch.weights import Owner
from plait.transformers.service import Service
from plait.transformers.shared import all_rows, own_rows
from plait.transformers.styles import group_of

NAME = "plait"
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_SILU = type(ACT2FN["silu"])


def activation_of(experts: Any) -> plait.torch.Swiglu | str:
    """Return the activation of a module of experts, or say why plait does not serve it."""
    if not getattr(experts, "has_gate", False):
        return "it has no gate"
    if experts.has_post_expert_norm:
        return "it normalises the results of experts"
    if type(experts).__name__ == "GptOssExperts":
        return plait.torch.Swiglu(
            interleaved=True, alpha=experts.alpha, limit=experts.limit, added=1.0
        )
    its_own = type(experts)._apply_gate.__name__ != "_default_apply_gate"
    if its_own or not experts.is_concatenated:
        return "it has an activation of its own"
    if type(experts.act_fn) is not _SILU:
        return f"its activation is {type(experts.act_fn).__name__}, not SiLU"
    return plait.torch.Swiglu()


def _refusal_of_call(experts: Any, hidden: torch.Tensor) -> str | None:
    weight = experts.gate_up_proj
    if hidden.device.type != "cpu":
        return f"its input is on {hidden.device}, and plait computes on the CPU"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if hidden.dtype not in _FLOATS or weight.dtype != hidden.dtype:
        return f"its input is {hidden.dtype}, and its weight is {weight.dtype}"
    return None


def _stacks(experts: Any) -> Stacks:
    stacks = Stacks(experts.gate_up_proj, experts.down_proj)
    if experts.has_bias:
        stacks.gate_up_bias, stacks.down_bias = experts.gate_up_proj_bias, experts.down_proj_bias
    return stacks


class PlaitEP(EPImplementation):  # type: ignore[misc]
    """Brings each token to the ranks of its experts, and its results back.

    Ranks that hold the same batch (`ep_size == tp_size`) exchange results alone at inference. In
    training each of them sends a slice of the batch, and gathers the results of all slices.
    """

    def __init__(self, experts: nn.Module, ep_mesh: Any, tp_mesh: Any) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self.theirs = AutoEP(experts, ep_mesh, tp_mesh)
        self.experts: Any = experts
        self.service: Service = vars(experts).get("plait_service") or UNASKED
        self.group = ep_mesh.get_group()
        self.tp_group = group_of(tp_mesh)
        self.owners = Owner(), Owner()
        found = activation_of(experts)
        if isinstance(found, str):
            self.service.leaves(experts, found, self.group, logging.WARNING)
        self.activation = found
        vars(experts)["plait_experts"] = self

    def __call__(
        self, hidden: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum of each token's experts."""
        refusal = _refusal_of_call(self.experts, hidden)
        if isinstance(self.activation, str) or not self.service.serves_experts(refusal, self.group):
            left: torch.Tensor = self.theirs(hidden, top_k_index, top_k_weights)
            return left
        return self.multiply(hidden, top_k_index, top_k_weights)

    def multiply(
        self, hidden: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Do it in plait's layer; profile() times this."""
        assert not isinstance(self.activation, str)
        stacks = _stacks(self.experts)
        trains = torch.is_grad_enabled() and any(
            one is not None and one.requires_grad
            for one in (hidden, top_k_weights, *stacks.tensors())
        )
        shares = self.shares_batch and not trains
        slices = self.tp_group.size() > 1 and not shares
        tokens = hidden.shape[0]
        if slices:
            hidden, top_k_weights = (
                own_rows(one, self.tp_group) for one in (hidden, top_k_weights)
            )
            top_k_index = own_rows(top_k_index, self.tp_group)
        out = plait.torch.expert_parallel(
            hidden,
            top_k_index,
            top_k_weights,
            stacks.gate_up,
            stacks.down,
            experts=self.num_local_experts * self.group.size(),
            gate_up_bias=stacks.gate_up_bias,
            down_bias=stacks.down_bias,
            activation=self.activation,
            transposed=self.experts.is_transposed,
            shared_batch=shares,
            group=self.group,
            options=self.service.options_of_experts,
            owners=self.owners,
        )
        return all_rows(out, tokens, self.tp_group) if slices else out

    def see_changes(self) -> None:
        """Forget packed weights of other versions; local parts of a DTensor don't count its own."""
        for owner, name in zip(self.owners, ("gate_up_proj", "down_proj"), strict=True):
            owner.see_changes(self.experts._parameters[name])


class Experts:
    """The style that lets PlaitEP reach experts where the choice is left to transformers."""

    service: Service
    style: str

    def install_forward(
        self, module: Any, ep_mesh: Any, *, tp_mesh: Any, ep_implementation: str = "auto"
    ) -> nn.Module:
        """Install theirs, with plait's implementation."""
        if ep_implementation not in ("auto", NAME):
            sentence = f"ep_implementation={ep_implementation!r} is asked for"
            self.service.leaves(module, sentence, ep_mesh.get_group(), logging.INFO)
        else:
            ep_implementation = NAME
            vars(module)["plait_service"] = self.service
        installed: nn.Module = super().install_forward(  # type: ignore[misc]
            module, ep_mesh, tp_mesh=tp_mesh, ep_implementation=ep_implementation
        )
        if self.service.options.fixed_weights and ep_implementation == NAME:
            _watch_changes(module, vars(module)["plait_experts"])
        return installed


def _watch_changes(module: Any, implementation: PlaitEP) -> None:
    """Look at the parameters before they are replaced by their local parts."""
    theirs = module.forward

    def forward(*given: torch.Tensor) -> torch.Tensor:
        implementation.see_changes()
        out: torch.Tensor = theirs(*given)
        return out

    module.forward = forward


def experts_forward(
    experts: Any, hidden: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """Multiply by the experts of this process alone; ids beyond them stand for other ranks'."""
    activation = activation_of(experts)
    if isinstance(activation, str) or _refusal_of_call(experts, hidden) is not None:
        left: torch.Tensor = grouped_mm_experts_forward(experts, hidden, top_k_index, top_k_weights)
        return left
    return multiply_alone(experts, activation, hidden, top_k_index, top_k_weights)


def multiply_alone(
    experts: Any,
    activation: plait.torch.Swiglu,
    hidden: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Do it in plait's layer; profile() times this."""
    stacks = _stacks(experts)
    count, turned = stacks.down.shape[0], experts.is_transposed
    if is_compiling():
        ids = top_k_index.masked_fill(top_k_index >= count, -1)
        how = in_graphs.how_of(
            in_graphs.ALONE, _ALONE, count, 1, None, activation, turned, shared_batch=False
        )
        operands = hidden, ids, top_k_weights
        return in_graphs.multiply(operands, stacks.tensors(), None, how, None)
    placement = Placement.of(count, None, 1)
    check_operands(
        hidden, top_k_index, top_k_weights, stacks, placement, 0, turned, activation.widths
    )
    ids = top_k_index.masked_fill(top_k_index >= count, -1)
    call = Call(placement, context_alone(_ALONE), activation, turned)
    return apply(call, hidden, ids, top_k_weights, stacks)


_ALONE = plait.torch.Options()
UNASKED = Service(plait.torch.Options(), None)  # of models whose config alone chooses plait
EPImplementationInterface.register(NAME, PlaitEP)
ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
