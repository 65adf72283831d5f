import torch
import torch.distributed as dist

dist.init_process_group("gloo")
groups = {"gloo": dist.group.WORLD, "plait": dist.new_group(backend="plait")}
torch.manual_seed(dist.get_rank())
x = torch.randn(1 << 18).bfloat16()
exact = x.double()
dist.all_reduce(exact)
rounded = exact.bfloat16()
for name, group in groups.items():
    y = x.clone()
    dist.all_reduce(y, group=group)
    others = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(others, y)
    if dist.get_rank() == 0:
        off = (y != rounded).double().mean().item()
        same = all(torch.equal(y, other) for other in others)
        print(f"{name:<5} {off:6.1%} are not the rounded sum; the same on all ranks: {same}")
dist.destroy_process_group()
