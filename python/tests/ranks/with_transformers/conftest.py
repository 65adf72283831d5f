"""Tests of transformers load many models in one process."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from plait.torch.groups import alive


@pytest.fixture(autouse=True)
def groups_end(world: int) -> Iterator[None]:
    """Destroy the groups of a test's models.

    Transformers makes six for each model, and each has three threads. Among a thousand groups,
    training steps took ten times as long.
    """
    before = list(alive())
    yield
    for group in [one for one in alive() if one not in before]:
        dist.destroy_process_group(group)
