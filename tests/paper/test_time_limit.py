"""A sweep with a time limit: what may start, what is saved, and that the next call goes on to the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from icone.paper.engines.events import Event, Task
from icone.paper.engines.local import LocalEngine
from icone.paper.engines.packing import Packing
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.outcome import Outcome
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit

MakeSpec = Callable[..., RunSpec]
CPU = ExecutionSettings(device="cpu", threads=1)


def test_what_fits_starts_and_estimates_learn(spec: MakeSpec) -> None:
    now = [0.0]
    tasks = [Task(spec(seed)) for seed in range(4)]
    limit = TimeLimit(10, {task.spec.key: 240.0 for task in tasks}, clock=lambda: now[0])
    assert limit.how_many(tasks) == 2  # 600 s, of which each takes 240
    assert limit.how_many(tasks, processes=2) == 1
    limit.learn(Event("finished", tasks[0].spec, Outcome(status="done", seconds=60.0)))
    assert limit.how_many(tasks) == 4  # faster than estimated
    now[0] = 559.0
    assert limit.how_many(tasks) == 0
    assert limit.is_worth_beginning
    assert limit.how_many([tasks[0]._replace(begun=True)]) == 1
    now[0] = 571.0
    assert not limit.is_worth_beginning
    now[0] = 600.0
    assert limit.is_over
    assert TimeLimit().how_many(tasks) == 4
    assert not TimeLimit().is_over


def test_where_nothing_ends_in_time_the_first_that_waits_is_begun(store: Store, spec: MakeSpec) -> None:
    now = [0.0]
    first, second, short = (Task(spec(batch_size=size)) for size in (16, 8, 4))
    engine = LocalEngine(store, CPU, workers=1)
    engine.packing = Packing(1000, slots=1)
    engine.limit = TimeLimit(
        2, {first.spec.key: 500.0, second.spec.key: 100.0, short.spec.key: 50.0}, clock=lambda: now[0]
    )
    now[0] = 30.0
    engine.queue = [[first], [second], [short]]
    assert [engine._next_group(), engine._next_group()] == [[short], [first]]
    assert engine._next_group() == [second]  # which would have ended in a whole limit: the device is free now
    engine.queue = [[first], [second._replace(begun=True)], [short]]
    assert engine._next_group() == [second._replace(begun=True)]
    now[0] = 120.0
    assert engine._next_group() == []


def test_nothing_long_is_begun_in_the_last_half_minute(store: Store, spec: MakeSpec) -> None:
    now = [0.0]
    long, begun, short = Task(spec(0)), Task(spec(1), begun=True), Task(spec(2))
    engine = LocalEngine(store, CPU, workers=1)
    engine.limit = TimeLimit(2, {long.spec.key: 500.0, begun.spec.key: 500.0, short.spec.key: 5.0}, lambda: now[0])
    now[0] = 90.0
    engine.queue = [[long]]
    assert engine._next_group() == [long]  # exactly half a minute is left
    now[0] = 91.0
    engine.queue = [[long]]
    assert engine._next_group() == []
    engine.queue = [[long], [begun], [short]]
    assert [engine._next_group(), engine._next_group(), engine._next_group()] == [[begun], [short], []]
    assert engine.queue == [[long]]


def test_a_group_is_begun_as_memory_allows(store: Store, spec: MakeSpec) -> None:
    """Seeds that train side by side: as many as fit into the memory, where not even one would end in time."""
    seeds, others = [Task(spec(seed)) for seed in range(5)], [Task(spec(seed, batch_size=4)) for seed in range(2)]
    engine = LocalEngine(store, CPU, workers=2, together=5)
    engine.packing = Packing(1000, slots=2)
    engine.limit = TimeLimit(2, {task.spec.key: 500.0 for task in (*seeds, *others)}, clock=lambda: 0.0)
    engine.queue = [seeds]
    assert engine._next_group() == seeds  # nobody knows what they take: they have the device to themselves
    engine.packing.learn(spec(), 300)  # 330 with the margin: three fit
    engine.packing.learn(others[0].spec, 100)
    engine.queue = [seeds, others]
    assert engine._next_group() == seeds[:3]
    assert engine.queue == [seeds[3:], others]
    engine.packing.start("a", [spec()] * 2)  # beside which 340 are free
    engine.queue = [seeds[3:], others]
    assert engine._next_group() == others  # the first group that there is room for
    assert engine.queue == [seeds[3:]]


class UntilItTrains(TimeLimit):
    """Over as soon as a run has trained an epoch; nothing would end in time."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self.history = store.run_folder(key) / "training" / "history.jsonl"

    @property
    def is_over(self) -> bool:
        return self.history.exists() and self.history.stat().st_size > 0

    def how_many(self, group: Sequence[Task], processes: int = 1) -> int:
        return 0


def test_at_the_limit_states_are_saved_and_the_next_call_goes_on(store: Store, spec: MakeSpec) -> None:
    one, other = spec(0, epochs=150), spec(1)
    seen: list[str] = []
    tasks = [Task(one), Task(other)]
    LocalEngine(store, CPU, workers=1).run(tasks, lambda event: seen.append(event.kind), UntilItTrains(store, one.key))
    assert seen == ["started"]
    assert store.records() == []
    state = store.run_folder(one.key) / "training"
    epochs = len((state / "history.jsonl").read_text().splitlines())
    assert 0 < epochs < 150
    assert any((state / "state").iterdir())
    assert not store.run_folder(other.key).exists()
    LocalEngine(store, CPU, workers=1).run([Task(one, begun=True), Task(other)], lambda event: None)
    assert set(store.statuses().values()) == {"done"}
    record = store.last_record(one.key)
    assert record is not None
    assert store.executions(one.key) == 2
    whole = execute_one(one, store.run_folder("whole"), CPU)
    assert store.outcome(record).metrics == whole.metrics
