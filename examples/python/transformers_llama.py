import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.distributed import DistributedConfig

import plait.transformers

dist.init_process_group("plait")
set_seed(0)
config = LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=2, vocab_size=4096)
folder = tempfile.TemporaryDirectory()
name = [folder.name]  # in place of a model that you have
if dist.get_rank() == 0:
    LlamaForCausalLM(config).save_pretrained(folder.name)
dist.broadcast_object_list(name)

plait.transformers.enable()
model = AutoModelForCausalLM.from_pretrained(
    name[0], distributed_config=DistributedConfig(tp_size=dist.get_world_size())
)
prompt = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3)}
tokens = model.generate(**prompt, max_new_tokens=16, do_sample=False, pad_token_id=0)
if dist.get_rank() == 0:
    print(tokens[0].tolist())
    print(plait.transformers.report())
dist.destroy_process_group()
