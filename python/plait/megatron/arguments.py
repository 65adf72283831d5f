"""The command-line options that users of CoC know, for Megatron's parser.

    --use-ascend-coc          serve the layers, in automatic plans
    --coc-parallel-num N      in N parts; 1: serial
    --coc-fused-kernel        fused; takes precedence over the number of parts
    --coc-mode 0 or 1         serial, unless fused is asked for; -1 and 2 leave it to the others
    --coc-config FILE         the dictionary coc_cfgs, in a file of Python that is read, not run

The environment decides what these options leave open: PLAIT_PLAN, PLAIT_CONFIG, COC_PARALLEL_NUM
and USE_COC_FUSED_KERNEL. Its misspelt variables are named, and its bad values refused.
"""

import argparse
import logging
import os

import plait
from plait.megatron.swap import enable
from plait.torch.options import MOST_PARTS, Schedule

_log = logging.getLogger("plait.megatron")

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
    group.add_argument(
        "--coc-config",
        metavar="FILE",
        help="read the dictionary coc_cfgs from a file of Python, such as MindSpeed's "
        "user_config.py; the file is not run",
    )
    group.add_argument(
        "--plait-defer-logits",
        action="store_true",
        help="compute losses a block of logits at a time, to save memory",
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
    config: str | None = getattr(args, "coc_config", None)
    asked = getattr(args, "use_ascend_coc", False) or fused or mode != -1
    deferred: bool = getattr(args, "plait_defer_logits", False)
    asked = asked or parts is not None or config is not None or deferred
    if not asked and not any(os.environ.get(name) for name in _SWITCHES):
        return False
    _refuse_rivals(args)
    if parts is not None and not 1 <= parts <= MOST_PARTS:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.megatron: --coc-parallel-num {parts} is not between 1 and {MOST_PARTS}",
        )
    schedule: Schedule | None = None
    if fused:
        schedule, parts = "fused", None
    elif parts == 1 or mode in (0, 1):
        schedule, parts = "serial", None
    elif parts is not None:
        schedule = "pipelined"
    remarks = plait.check_environment()
    if os.environ.get("RANK", "0") == "0":
        for remark in remarks:
            _log.warning("%s", remark)
    enable(schedule=schedule, parts=parts, coc_cfgs=config, defer_logits=deferred)
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
