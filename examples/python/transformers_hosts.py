import tempfile
import time

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.distributed import DistributedConfig

import plait.transformers

set_seed(0)
sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2}
folder = tempfile.TemporaryDirectory()  # each host's own, in place of a model that you have
LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=4096)).save_pretrained(folder.name)
dist.init_process_group("gloo")
ranks = DistributedConfig(tp_size=dist.get_world_size())
how = {"dtype": "bfloat16", "distributed_config": ranks}
models = {"transformers": AutoModelForCausalLM.from_pretrained(folder.name, **how)}
plait.transformers.enable()
models["with plait"] = AutoModelForCausalLM.from_pretrained(folder.name, **how)

prompt = torch.arange(512)[None]
seconds: dict[str, list[float]] = {name: [] for name in models}
with torch.no_grad():
    for _ in range(30):  # in turns, so that other programs disturb both
        for name, model in models.items():
            begin = time.perf_counter()
            model(prompt)
            seconds[name].append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    for name, (first, *others) in seconds.items():
        print(f"{name:<13} first {first:.3f} s, then {sorted(others[-9:])[4]:.3f} s")
    print(plait.transformers.report())
dist.destroy_process_group()
