import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import plait.torch as pt

HEADS, KV_HEADS, SIZE, POSITIONS, HIDDEN = 8, 4, 16, 90, 128


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE)
        self.out = nn.Linear(HEADS * SIZE, HIDDEN)

    def forward(self, x):  # [positions, batch, hidden]
        sizes = [HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE]
        return self.out(attend(*self.qkv(x).split(sizes, dim=-1)))


class SequenceParallelAttention(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.qkv = pt.UlyssesQKV.from_linear(whole.qkv, heads=HEADS, kv_heads=KV_HEADS)
        self.out = pt.UlyssesOutput.from_linear(whole.out, heads=HEADS, kv_heads=KV_HEADS)

    def forward(self, x):  # [this rank's positions, batch, hidden]
        return self.out(attend(*self.qkv.split(self.qkv(x, rows=POSITIONS))))


def attend(q, k, v):  # of any number of heads
    q, k, v = (part.unflatten(-1, (-1, SIZE)).permute(1, 2, 0, 3) for part in (q, k, v))
    heads = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return heads.permute(2, 0, 1, 3).flatten(2)


comm = pt.init()
torch.manual_seed(0)  # every rank makes the same whole block
whole = Attention()
shared = SequenceParallelAttention(whole)
x = torch.randn(POSITIONS, 2, HIDDEN)
own = x.tensor_split(comm.world)[comm.rank]  # the first ranks have one position more
y = shared(own)
wanted = whole(x).tensor_split(comm.world)[comm.rank]
near = torch.allclose(y, wanted, atol=1e-5)
print(f"rank {comm.rank}: {len(own)} of {POSITIONS} positions, as one rank: {near}\n", end="")
