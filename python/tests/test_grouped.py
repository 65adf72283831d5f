"""plait.grouped_matmul: groups of rows by their own weights have the bits of a product each."""

import pytest
import torch

import plait

OUT_IN = plait.WeightLayout.out_in
ROWS = [3, 0, 40, 1]
N, K = 70, 33


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scheme", [None, "packed", "s8:channel", "s4:group=32"])
def test_it_has_the_bits_of_a_product_for_each_group(
    dtype: torch.dtype, scheme: str | None
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(sum(ROWS), K, generator=generator).to(dtype)
    plain = [torch.randn(N, K, generator=generator).to(dtype) for _ in ROWS]
    weights: list[plait.WeightView | plait.PackedWeight]
    if scheme is None:
        weights = [plait.WeightView(weight, OUT_IN) for weight in plain]
    elif scheme == "packed":
        weights = [plait.PackedWeight(weight, layout=OUT_IN) for weight in plain]
    else:
        kind = plait.QuantScheme(scheme)
        weights = [
            plait.PackedWeight(plait.quantize(weight, layout=OUT_IN, scheme=kind))
            for weight in plain
        ]
    biases = [torch.randn(1, N, generator=generator) for _ in ROWS]
    for threads in (1, 2, 3):
        out = torch.zeros(sum(ROWS), N, dtype=dtype)
        plait.grouped_matmul(x, weights, ROWS, out, biases=biases, threads=threads)
        first = 0
        for weight, count, bias in zip(weights, ROWS, biases, strict=True):
            rows = slice(first, first + count)
            alone = torch.zeros(count, N, dtype=dtype)
            plait.grouped_matmul(x[rows], [weight], [count], alone, biases=[bias], threads=1)
            assert torch.equal(out[rows], alone)
            first += count


def test_whole_numbers_are_exact() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(-4, 5, (sum(ROWS), K), generator=generator).float()
    plain = [torch.randint(-4, 5, (N, K), generator=generator).float() for _ in ROWS]
    out = torch.zeros(sum(ROWS), N)
    weights = [plait.WeightView(weight, OUT_IN) for weight in plain]
    plait.grouped_matmul(x, weights, ROWS, out)
    parts = zip(x.split(ROWS), plain, strict=True)
    assert torch.equal(out, torch.cat([rows @ weight.T for rows, weight in parts]))


def test_refusals() -> None:
    x, out = torch.zeros(4, K), torch.zeros(4, N)
    weights = [plait.WeightView(torch.zeros(N, K), OUT_IN) for _ in range(2)]
    for rows, sentence in [
        ([4, -1], "grouped matmul: group 1 has -1 rows"),
        ([4, 1], "grouped matmul: group 1 has 1 row, and 4 of 4 are taken before it"),
        ([1, 2], "grouped matmul: the groups have 3 rows, x 4 and out 4"),
        ([4], "grouped matmul: 2 weights for 1 group"),
    ]:
        with pytest.raises(plait.Error) as caught:
            plait.grouped_matmul(x, weights, rows, out)
        assert str(caught.value) == sentence
    with pytest.raises(plait.Error, match=r"^grouped matmul: 0 biases for 2 weights$"):
        plait.grouped_matmul(x, weights, [1, 3], out, biases=[])
    with pytest.raises(plait.Error, match=r"^grouped matmul: "):
        plait.grouped_matmul(x, weights, [1, 3], out, backend="none")
    plait.grouped_matmul(x[:0], [], [], out[:0])
