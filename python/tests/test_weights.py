"""The signs that a weight has changed: its place, its version, and its values."""

import pytest
import torch

from plait import _native
from plait.torch import weights


def fingerprint(weight: torch.Tensor) -> int:
    return _native._fingerprint(weights.plain(weight))


# Some are whole blocks of words, some less than one, some have odd bytes left, one has nothing.
SIZES = [(0, 4), (1, 1), (3, 5), (8, 64), (7, 129), (64, 100)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_fingerprint_is_of_all_values_and_of_their_places(
    size: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = torch.randn(size, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = fingerprint(weight)
    assert fingerprint(weight.clone()) == before
    seen = {before}
    values = weight.view(-1)
    for i in range(values.numel()):  # one value in the least of its bits
        changed = weight.clone()
        changed.view(torch.int32 if dtype == torch.float32 else torch.int16).view(-1)[i] ^= 1
        seen.add(fingerprint(changed))
    assert len(seen) == values.numel() + 1
    places = 0
    for i in range(1, values.numel()):  # two values change places
        changed = weight.clone()
        changed.view(-1)[0], changed.view(-1)[i] = values[i].item(), values[0].item()
        places += not torch.equal(changed, weight)
        seen.add(fingerprint(changed))
    assert len(seen) == values.numel() + 1 + places


def test_a_share_of_columns_has_the_fingerprint_of_its_values() -> None:
    whole = torch.randn(9, 96)
    share = whole[:, 32:64]  # whole blocks of words in each row
    before = fingerprint(share)
    whole[:, :32] += 1
    assert fingerprint(share) == before
    whole[3, 40] += 1
    assert fingerprint(share) != before
