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
    assert not limit.is_longer_than_any(tasks)  # the next call has time for it
    assert limit.how_many([tasks[0]._replace(begun=True)]) == 1
    now[0] = 600.0
    assert limit.is_over
    assert TimeLimit().how_many(tasks) == 4
    assert not TimeLimit().is_over


def test_what_is_longer_than_any_limit_is_begun_when_nothing_else_fits(store: Store, spec: MakeSpec) -> None:
    now = [0.0]
    long, short = Task(spec(batch_size=16)), Task(spec(batch_size=4))
    engine = LocalEngine(store, CPU, workers=1)
    engine.packing = Packing(1000, slots=1)
    engine.limit = TimeLimit(1, {long.spec.key: 61.0, short.spec.key: 50.0}, clock=lambda: now[0])
    engine.queue = [[long], [short]]
    assert engine._next_group() == [short]
    assert engine._next_group() == [long]
    engine.queue = [[short], [long]]
    now[0] = 30.0
    assert engine._next_group() == [long]
    assert engine._next_group() == []  # which would end in another call
    engine.queue = [[long]]
    now[0] = 60.0
    assert engine._next_group() == []


class UntilItTrains(TimeLimit):
    """Over as soon as a run has trained an epoch."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self.history = store.run_folder(key) / "training" / "history.jsonl"

    @property
    def is_over(self) -> bool:
        return self.history.exists() and self.history.stat().st_size > 0

    def how_many(self, group: Sequence[Task], processes: int = 1) -> int:
        return 1


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
