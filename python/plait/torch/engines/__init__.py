"""The engines that make a call's products and collectives, and the choice among them.

    native   plait's kernels on the CPU; layers are native too
    gpu      plait's kernels on NVIDIA's GPUs
    c10d     torch's products, with the collectives of a process group

`engine.Engine` lists the methods that all of them have, and `choice.choose()` takes one of them for
a call. The latter two share the way in which layers are made of products.
"""
