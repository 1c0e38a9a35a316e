"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU; Triton looks at it when it is first imported

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore Ctrl-C

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep prepared samples out of the user's cache, and those of the user out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, from ICONE_TEST_DATA or the default place; skips where there is none."""
    folder = Path(os.environ.get("ICONE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder} (set ICONE_TEST_DATA)")
    return folder


class NoHostTraffic(TorchDispatchMode):
    """Fails on operations that read a value back, have a size that depends on one, or bring one to the device."""

    FORBIDDEN = (
        "_local_scalar_dense", "item", "nonzero", "is_nonzero", "masked_select", "equal", "lift_fresh", "_unique2",
        "unique_consecutive", "unique_dim", "repeat_interleave.Tensor",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        assert name not in self.FORBIDDEN, name
        assert name.split(".")[0] not in self.FORBIDDEN, name
        if name.startswith("index."):
            assert all(i is None or i.dtype != torch.bool for i in args[1]), "indexing by a boolean mask"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def no_host_traffic() -> type[TorchDispatchMode]:
    """The step contract as a guard: `with no_host_traffic(): …`."""
    return NoHostTraffic


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the next run stop after so many steps, as Ctrl-C would."""

    def arrange(steps: int) -> None:
        class Wish:
            asked = 0
            wants_requeue = False

            @property
            def requested(self) -> bool:
                self.asked += 1
                return self.asked == steps

        @contextmanager
        def watching(**options: bool) -> Iterator[Any]:
            monkeypatch.undo()
            yield Wish()

        # The module by its name: the package's attribute of that name is the function in it.
        monkeypatch.setattr(sys.modules["icone.training.loop"], "watch_signals", watching)

    return arrange
