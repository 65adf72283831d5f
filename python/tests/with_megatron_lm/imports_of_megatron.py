"""Imports what pretrain_gpt.py does, which must find the stand-ins for torch.cuda."""

import importlib

from plait.megatron.host import stand_in_for_cuda

stand_in_for_cuda()
for module in (
    "gpt_builders",
    "model_provider",
    "megatron.training",
    "megatron.core.tokenizers.text",  # with the half of transformers that tokenizes
    "megatron.training.arguments",
):
    importlib.import_module(module)
