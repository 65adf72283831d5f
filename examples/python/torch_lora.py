import tempfile

import torch
import torch.distributed as dist
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

import plait.peft
import plait.torch as pt

comm = pt.init()
set_seed(0)
config = LlamaConfig(
    hidden_size=256,
    intermediate_size=704,
    num_attention_heads=4,
    num_hidden_layers=2,
    vocab_size=256,
)
whole = LlamaForCausalLM(config)  # in place of a model that you have
state = whole.state_dict()

lora = LoraConfig(r=16, target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"])
model = get_peft_model(pt.parallelize(whole), plait.peft.register(lora))
optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.01)
for _ in range(10):
    tokens = (torch.randint(256, (16, 1)) + torch.arange(16)) % 256  # to count
    optimizer.zero_grad()
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
loss = model(tokens, labels=tokens).loss

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, is_main_process=comm.rank == 0)  # every rank makes the call
    if comm.rank == 0:  # the adapters are whole: one process can load them
        alone = LlamaForCausalLM(config)
        alone.load_state_dict(state)
        again = PeftModel.from_pretrained(alone, folder)(tokens, labels=tokens).loss
        print(f"a loss of {loss:.4f} on {comm.world} ranks, and of {again:.4f} on one")
dist.destroy_process_group()
