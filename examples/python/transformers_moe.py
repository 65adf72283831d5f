import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed
from transformers.distributed import DistributedConfig

import plait.transformers

dist.init_process_group("plait")
set_seed(0)
config = Qwen3MoeConfig(
    hidden_size=256,
    moe_intermediate_size=192,
    num_experts=16,
    num_experts_per_tok=4,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=4096,
)
folder = tempfile.TemporaryDirectory()
name = [folder.name]  # in place of a model that you have
if dist.get_rank() == 0:
    Qwen3MoeForCausalLM(config).save_pretrained(folder.name)
dist.broadcast_object_list(name)

plait.transformers.enable()
ranks = dist.get_world_size()
model = AutoModelForCausalLM.from_pretrained(
    name[0], distributed_config=DistributedConfig(tp_size=ranks, ep_size=ranks)
)
prompt = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3)}
tokens = model.generate(**prompt, max_new_tokens=16, do_sample=False, pad_token_id=0)
if dist.get_rank() == 0:
    print(tokens[0].tolist())
    print(plait.transformers.report())
dist.destroy_process_group()
