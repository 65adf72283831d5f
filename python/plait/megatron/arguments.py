"""The command-line options that users of CoC know, for Megatron's parser.

    --use-ascend-coc          serve the layers, in automatic plans
    --coc-parallel-num N      in N parts; 1: serial
    --coc-fused-kernel        fused; takes precedence over the number of parts
    --coc-mode 0 or 1         serial, unless fused is asked for; -1 and 2 leave it to the others

The environment decides what these options leave open: PLAIT_PLAN, PLAIT_CONFIG, COC_PARALLEL_NUM
and USE_COC_FUSED_KERNEL.
"""

import argparse
import os

import plait
from plait.megatron.swap import enable
from plait.torch import Schedule

_SWITCHES = ("COC_PARALLEL_NUM", "USE_COC_FUSED_KERNEL", "PLAIT_PLAN", "PLAIT_CONFIG")


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options, and return the parser: Megatron's `extra_args_provider`."""
    group = parser.add_argument_group("plait")
    group.add_argument(
        "--use-ascend-coc",
        "--use-plait",
        action="store_true",
        help="hide the communication of tensor-parallel layers behind their products",
    )
    group.add_argument(
        "--coc-parallel-num",
        type=int,
        metavar="N",
        help="pipeline each product in N parts; 1: serial",
    )
    group.add_argument("--coc-fused-kernel", action="store_true", help="use fused schedules")
    group.add_argument(
        "--coc-mode",
        type=int,
        choices=(-1, 0, 1, 2),
        default=-1,
        help="0 and 1: serial, unless fused is asked for; -1 and 2: as the other options say",
    )
    # Known only to be refused: a parser that doesn't know them would hand them on to the script.
    for option in ("--use-ascend-mc2", "--tp-2d", "--unaligned-linear"):
        group.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    group.add_argument(
        "--optimize-recomp-communication-level", type=int, default=0, help=argparse.SUPPRESS
    )
    return parser


def enable_from_arguments(args: argparse.Namespace) -> bool:
    """Enable what the options or the environment ask for; true if they ask for anything.

    Megatron's own arguments are checked too: those that replace the same layers are refused.
    """
    parts: int | None = getattr(args, "coc_parallel_num", None)
    fused: bool = getattr(args, "coc_fused_kernel", False)
    mode: int = getattr(args, "coc_mode", -1)
    asked = getattr(args, "use_ascend_coc", False) or fused or parts is not None or mode != -1
    if not asked and not any(os.environ.get(name) for name in _SWITCHES):
        return False
    _refuse_rivals(args)
    schedule: Schedule | None = None
    if fused:
        schedule, parts = "fused", None
    elif parts == 1 or mode in (0, 1):
        schedule, parts = "serial", None
    elif parts is not None:
        schedule = "pipelined"
    enable(schedule=schedule, parts=parts)
    return True


def _refuse_rivals(args: argparse.Namespace) -> None:
    rivals = {
        "--use-ascend-mc2": getattr(args, "use_ascend_mc2", False),
        "--optimize-recomp-communication-level": getattr(
            args, "optimize_recomp_communication_level", 0
        ),
        "--tp-2d": getattr(args, "tp_2d", False),
        "--unaligned-linear": getattr(args, "unaligned_linear", False),
        "--tp-comm-overlap": getattr(args, "tp_comm_overlap", False),
    }
    for option, value in rivals.items():
        if value:
            raise plait.Error(
                plait.Code.invalid_argument,
                f"plait.megatron: {option} replaces the communication of the same layers; "
                "leave out one of the two",
            )
