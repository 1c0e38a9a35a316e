"""How many runs fit beside each other, from the memory that runs like them took."""

from __future__ import annotations

from collections.abc import Sequence

from icone.paper.spec import RunSpec

MARGIN = 1.1
"""Of the measured peak: other seeds fragment memory differently."""
OTHER_METHOD = 2
"""By what the memory of another method with the same network is multiplied."""


class Packing:
    """The memory of a device, what is measured, and what runs now.

    A run of a known shape takes what its kind took before. One of an unknown shape takes at most what the same method
    on the same data took at a larger batch. Where no such run is known, it takes at most twice what any method took
    on that data with the same network and micro-batches at that batch or a larger one: some methods have a second copy
    of the network. Where nothing is known, it takes `guess`, or if that is None it runs alone. A run for which this was
    too little is tried again alone. `overhead` comes on top of every run: what a process takes on a GPU before its
    first tensor.
    """

    def __init__(self, capacity: int, *, slots: int, guess: int | None = None, overhead: int = 0) -> None:
        self.capacity, self.slots, self.guess, self.overhead = capacity, slots, guess, overhead
        self.measured: dict[tuple[object, ...], int] = {}
        self.running: dict[str, int] = {}

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        if peak_bytes:
            self.measured[spec.shape] = max(self.measured.get(spec.shape, 0), peak_bytes)

    def need(self, spec: RunSpec) -> int | None:
        """Bytes that a run will take, or None where nobody knows: it then runs alone."""
        if spec.shape in self.measured:
            return self._with_margin(self.measured[spec.shape])
        larger = {shape: peak for shape, peak in self.measured.items() if _batch(shape) >= _batch(spec.shape)}
        if alike := [peak for shape, peak in larger.items() if _family(shape) == _family(spec.shape)]:
            return self._with_margin(min(alike))
        others = [peak for shape, peak in larger.items() if _network(shape) == _network(spec.shape)]
        return self._with_margin(OTHER_METHOD * max(others)) if others else self.guess

    def together(self, spec: RunSpec, wanted: int) -> int:
        """How many of the wanted runs of this shape may share a process.

        Where nobody knows what one takes, all of them: they have the device to themselves, and if that is too little
        the process goes on one by one.
        """
        need = self.need(spec)
        return wanted if need is None else max(1, min(wanted, self.capacity // max(need, 1)))

    def fits(self, specs: Sequence[RunSpec], alone: bool = False) -> bool:
        """Whether a group of runs may start now; anything may where nothing runs."""
        if not self.running:
            return True
        if alone or len(self.running) >= self.slots or self.capacity in self.running.values():
            return False
        needs = [self.need(spec) for spec in specs]
        if None in needs:
            return False
        return sum(self.running.values()) + sum(n for n in needs if n is not None) <= self.capacity

    def start(self, name: str, specs: Sequence[RunSpec], alone: bool = False) -> None:
        needs = [self.need(spec) for spec in specs]
        known = [n for n in needs if n is not None]
        self.running[name] = self.capacity if alone or len(known) < len(needs) else sum(known)

    def end(self, name: str) -> None:
        del self.running[name]

    def _with_margin(self, peak: int) -> int:
        return min(self.capacity, int(MARGIN * peak) + self.overhead)


def _family(shape: tuple[object, ...]) -> tuple[object, ...]:
    return shape[:-2]


def _network(shape: tuple[object, ...]) -> tuple[object, ...]:
    """What is measured, the samples, and how the network takes them, of a `RunSpec.shape`."""
    cost, source, subset, _imbalance, size, crop, encoder, width, _method, _options, micro_batch, *_ = shape
    return cost, source, subset, size, crop, encoder, width, micro_batch


def _batch(shape: tuple[object, ...]) -> int:
    batch_size, views = shape[-2:]
    assert isinstance(batch_size, int)
    assert isinstance(views, int)
    return batch_size * views
