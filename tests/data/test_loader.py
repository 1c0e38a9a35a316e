"""Batches: every instance once, an order from (seed, epoch), the same from memory and from files."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from icone.config import PretrainConfig
from icone.data import Batch, Dataset, Loader, load_data
from icone.data.loader import batch_sizes
from icone.data.threads import read_ahead
from icone.errors import InputError


def dataset(resident: bool = True) -> Dataset:
    memory = None if resident else 0.0
    return load_data(PretrainConfig(source="synthetic:cells@16x23", memory_gb=memory)).train


def epoch(loader: Loader, number: int = 0, start: int = 0) -> Iterator[Batch]:
    """The batches of an epoch, each in memory of its own."""
    loader.begin(number, start)
    for size in loader.sizes[start:]:
        loader.advance([size])
        yield Batch(*(part.clone() for part in loader.take(0, size)))
    loader.end()


@pytest.fixture(scope="module", params=[True, False], ids=["resident", "read ahead"])
def data(request: pytest.FixtureRequest) -> Dataset:
    return dataset(request.param)


@pytest.mark.parametrize("batch_size", [1, 5, 23])
def test_every_instance_once_and_a_short_last_batch(data: Dataset, batch_size: int) -> None:
    loader = Loader(data, batch_size, seed=0)
    batches = list(epoch(loader))
    assert len(batches) == len(loader.sizes) == -(-23 // batch_size)
    assert [len(b.index) for b in batches[:-1]] == [batch_size] * (len(batches) - 1)
    index = torch.cat([b.index for b in batches])
    assert index.sort().values.tolist() == list(range(23))
    assert index.dtype == torch.int64
    images = torch.cat([b.images for b in batches])
    torch.testing.assert_close(images, data.images_at(index))
    assert images.dtype == torch.uint8
    assert torch.equal(torch.cat([b.label for b in batches]), data.labels[index])


def test_order_is_a_function_of_seed_and_epoch(data: Dataset) -> None:
    def order(seed: int, number: int) -> list[int]:
        return torch.cat([b.index for b in epoch(Loader(data, 4, seed), number)]).tolist()

    assert order(0, 3) == order(0, 3)
    orders = {tuple(order(seed, number)) for seed in range(2) for number in range(3)}
    assert len(orders) == 6
    assert Loader(data, 1, 0).order(3).tolist() == order(0, 3)


def test_starting_in_the_middle(data: Dataset) -> None:
    loader = Loader(data, 4, seed=0)
    whole, rest = list(epoch(loader, 2)), list(epoch(loader, 2, start=4))
    assert len(rest) == 2
    for a, b in zip(whole[4:], rest, strict=True):
        assert torch.equal(a.index, b.index)
        assert torch.equal(a.images, b.images)
    assert list(epoch(loader, 2, start=6)) == []


@pytest.mark.parametrize("batch_size", range(2, 24))
@pytest.mark.parametrize("smallest", [1, 2, 3])
def test_no_batch_is_below_the_smallest_and_every_instance_has_its_turn(batch_size: int, smallest: int) -> None:
    if batch_size < smallest:
        return
    for count in range(batch_size, 50):
        sizes, rest = batch_sizes(count, batch_size, smallest), count % batch_size
        assert sum(sizes) == count
        assert min(sizes) >= smallest
        assert len(set(sizes)) <= 3
        if rest == 0 or rest >= smallest:
            assert sizes == [batch_size] * (count // batch_size) + [rest] * (rest > 0)
        elif batch_size + rest >= 2 * smallest:
            assert max(sizes) <= batch_size
        else:
            assert sizes == [batch_size] * (count // batch_size - 1) + [batch_size + rest]


@pytest.mark.parametrize(("batch_size", "sizes"), [(2, [2] * 10 + [3]), (11, [11, 6, 6]), (22, [12, 11])])
def test_starting_in_the_middle_follows_the_sizes(data: Dataset, batch_size: int, sizes: list[int]) -> None:
    loader = Loader(data, batch_size, seed=0, smallest_batch=2)
    assert loader.sizes == sizes
    whole = [b.index.tolist() for b in epoch(loader, 1)]
    assert [len(index) for index in whole] == sizes
    assert [i for index in whole for i in index] == loader.order(1).tolist()
    for start in range(len(sizes) + 1):
        assert [b.index.tolist() for b in epoch(loader, 1, start)] == whole[start:]


def test_leaving_an_epoch_early_stops_the_threads() -> None:
    before = set(threading.enumerate())  # those of others are not ours to judge
    loader = Loader(dataset(resident=False), 1, seed=0)
    loader.begin(0)
    loader.advance([1])
    started = [t for t in threading.enumerate() if t not in before and t.name.startswith("icone-read")]
    assert started
    loader.end()
    assert not any(t.is_alive() for t in started)


def test_batch_size_must_fit(data: Dataset) -> None:
    for size in (0, 24):
        with pytest.raises(InputError, match=f"must be 1 to 23, the number of training samples, got {size}"):
            Loader(data, size, seed=0)


def test_one_sample_is_too_few(data: Dataset) -> None:
    alone = Dataset(data.source, [0], data.preparation, resident=True)
    with pytest.raises(InputError, match="at least 2 samples, got 1"):
        Loader(alone, 1, seed=0)


def test_read_ahead_is_bounded_and_in_order() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for k in range(50):
            taken.append(k)
            yield k

    results = read_ahead(lambda k: k * k, items(), workers=2, ahead=3)
    assert next(results) == 0
    assert len(taken) == 4
    assert list(results) == [k * k for k in range(1, 50)]


def test_read_ahead_passes_errors_on() -> None:
    def fail(item: int) -> int:
        raise InputError(f"item {item}")

    with pytest.raises(InputError, match="item 0"):
        list(read_ahead(fail, range(3), workers=2, ahead=2))
