import numpy as np

import plait

comm = plait.Communicator.connect()  # under plait run, torchrun, mpirun or srun
x = np.full((64, 500), 0.5, np.float32)  # 500 inputs of each rank
w = np.full((256, 500), comm.rank + 1.0, np.float32)
weight = plait.PackedWeight(w, layout="out_in")
y = np.empty((64, 256), np.float32)
plait.matmul_all_reduce(x, weight, y, comm)  # y = the sum over ranks of x·wᵀ
print(f"rank {comm.rank} of {comm.world} over {comm.transport}: y[2, 3] = {y[2, 3]}\n", end="")
