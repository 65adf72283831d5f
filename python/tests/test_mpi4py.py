"""Communicators of mpi4py as groups of plait."""

import shutil
import sys
from pathlib import Path

import pytest
from launching import completed, ended

import plait

CONNECTS = """
import sys
import numpy as np
import plait
assert "mpi4py" not in sys.modules
everyone = plait.Communicator.from_mpi(transport=sys.argv[1])
from mpi4py import MPI
world = MPI.COMM_WORLD
part = world.Split(world.rank % 2, -world.rank)
with everyone, plait.Communicator.from_mpi(part, transport=sys.argv[1], timeout=60) as half:
    for comm, theirs in (everyone, world), (half, part):
        assert (comm.rank, comm.world) == (theirs.rank, theirs.size)
        x = np.full(5, world.rank + 1, np.float32)
        plait.all_reduce(x, comm)
        assert (x == theirs.allreduce(world.rank + 1)).all(), x
    sys.stdout.write(f"{everyone.world} {half.world} {half.transport}\\n")
"""

REFUSALS = """
import sys
import plait
from mpi4py import MPI
world = MPI.COMM_WORLD
part = world.Split(world.rank % 2)
other = part.Create_intercomm(0, world, 1 - world.rank % 2)
none = world.Split(MPI.UNDEFINED)
for comm in "world", none, other:
    try:
        plait.Communicator.from_mpi(comm)
    except (TypeError, plait.Error) as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\\n")
other.Free()
MPI.Finalize()
try:
    plait.Communicator.from_mpi()
except plait.Error as error:
    sys.stdout.write(f"{error}\\n")
"""


def mpirun(ranks: int, script: Path, *arguments: str) -> list[str]:
    """Return the lines of all ranks."""
    pytest.importorskip("mpi4py")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here")
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    done = completed(*launch, sys.executable, script, *arguments)
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_parts_of_a_program_are_groups(tmp_path: Path, ranks: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(CONNECTS)
    transport = "shm" if ranks == 4 else ""
    found = mpirun(ranks, script, transport)
    assert [line.split()[:2] for line in found] == ranks * [[str(ranks), str(max(ranks // 2, 1))]]
    assert ranks < 4 or all(line.endswith(" shm") for line in found)


def test_chunks_go_through_mpi_if_asked(tmp_path: Path) -> None:
    if not list((Path(plait.__file__).parent / "lib" / "plait").glob("libplait_mpi_*.so")):
        pytest.skip("the package has no plugin for MPI")
    script = tmp_path / "program.py"
    script.write_text(CONNECTS)
    assert mpirun(4, script, "mpi") == 4 * ["4 2 mpi"]


def test_what_is_no_communicator_is_refused_in_words(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(REFUSALS)
    sentences = (
        "Error: from_mpi: an intercommunicator has two groups; merge them before",
        "Error: from_mpi: this process is in no communicator: MPI.COMM_NULL",
        "TypeError: from_mpi: comm is no communicator of mpi4py",
        "from_mpi: the program has called MPI.Finalize()",
    )
    assert mpirun(2, script) == [each for each in sentences for _ in range(2)]


def test_mpi4py_is_imported_by_the_call_alone() -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None; import plait; plait.Communicator.from_mpi()"
    )
    done = ended(sys.executable, "-c", program, timeout=120)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
