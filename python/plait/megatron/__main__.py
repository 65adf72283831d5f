"""Run a training script whose tensor-parallel layers plait serves, without an edit.

    torchrun -m plait.megatron pretrain_gpt.py --coc-fused-kernel ARGS...

Options that plait knows are taken out, before the script's name and after it; the script gets the
rest, `--help` included. At the end rank 0 writes to stderr what was served. The exit status is the
script's. With a version of Megatron-Core that plait doesn't know, the script runs as it is.

Where torch finds no CUDA device, the CPU stands in for one (plait.megatron.host). --no-stand-ins
leaves torch as it is.
"""

import argparse
import os
import runpy
import sys

import plait
import plait.megatron
from plait.megatron.arguments import add_arguments, enable_from_arguments
from plait.megatron.host import Refused, stand_in_for_cuda


def main() -> None:
    """Enable, and run the script as `python SCRIPT ARGS...` would."""
    parser = argparse.ArgumentParser(
        prog="python -m plait.megatron",
        description="Run a Megatron script whose tensor-parallel layers plait serves.",
        usage="torchrun -m plait.megatron SCRIPT [ARGS ...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--no-stand-ins",
        action="store_true",
        help="leave torch.cuda as it is where torch finds no CUDA device",
    )
    add_arguments(parser)
    parser.add_argument("script", help="the training script, such as pretrain_gpt.py")
    more = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="of the script, and of plait"
    )
    more.required = False  # Python 3.11 would name it beside a missing script
    args = parser.parse_args()
    behind = argparse.ArgumentParser(prog=parser.prog, add_help=False, allow_abbrev=False)
    behind.add_argument("--no-stand-ins", action="store_true")
    _, rest = add_arguments(behind).parse_known_args(args.arguments, args)
    if not os.path.isfile(args.script):
        parser.error(f"there is no script {args.script}")
    sys.argv = [args.script, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(args.script))
    try:
        if not args.no_stand_ins:
            stand_in_for_cuda()
        args.use_ascend_coc = True
        args.tp_comm_overlap = "--tp-comm-overlap" in rest
        enable_from_arguments(args)
    except plait.Error as error:
        parser.error(str(error))
    reports = os.environ.get("RANK", "0") == "0"
    try:
        runpy.run_path(args.script, run_name="__main__")
    except Refused as refused:
        reports = False  # no layer was made
        sys.exit(str(refused))
    finally:  # many scripts end by sys.exit()
        if reports:
            sys.stderr.write(f"{plait.megatron.report()}\n")


if __name__ == "__main__":
    main()
