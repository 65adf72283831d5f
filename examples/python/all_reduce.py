import numpy as np

import plait

with plait.Communicator.connect() as comm:  # under plait run, torchrun, mpirun or srun
    x = np.full(4, comm.rank + 1.0, dtype=np.float32)
    plait.all_reduce(x, comm)
    print(f"rank {comm.rank} of {comm.world} over {comm.transport}: {x}")
