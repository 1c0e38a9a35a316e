"""A second process that compiles a step and so fills the compiler's cache on disk, while the first one trains."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any


class CompilerProcess:
    """The program `python -m MODULE`, which gets a request as one line of JSON and ends when its work is done.

    It ends as well when the process that started it does, however that ends: it then finds its input closed.
    """

    def __init__(self, module: str, request: dict[str, Any]) -> None:
        self.command = [sys.executable, "-P", "-m", module]  # nothing is imported from the folder that we are in
        self.request = request
        self.reason = ""
        """Why it has failed."""
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def start(self, known: dict[str, Any]) -> None:
        """Begin, with what is known by now beside the request."""
        places = os.pathsep.join(place for place in sys.path if place)  # what this process can import
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": places},
            start_new_session=True,  # an interruption from the keyboard is for the process that trains
        )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already, and `succeeded` says so
            self._process.stdin.write(json.dumps({**self.request, **known}).encode() + b"\n")
            self._process.stdin.flush()

    def succeeded(self) -> bool | None:
        """Whether it has compiled everything; None while it is at work."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return None
        if code != 0 and not self.reason:
            self.reason = self._last_line() or f"exit code {code}"
        self.close()
        return code == 0

    def close(self) -> None:
        """End it, if it is still there."""
        if self._process is None or self._output is None:  # not begun, or over
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # nobody has read what was written
            self._process.stdin.close()
        self._output.close()
        self._output = None

    def _last_line(self) -> str:
        assert self._output is not None
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def read_request() -> dict[str, Any]:
    """The request, in the process that was started; from now on it ends when the one that started it does."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 2**16)):  # Python's own stdin could not be left at the end
        line += more
    request: dict[str, Any] = json.loads(line)

    def end_with_the_other() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=end_with_the_other, daemon=True).start()
    return request
