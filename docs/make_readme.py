"""Run the example of README.md in an empty folder, and write what it printed into README.md.

    python docs/make_readme.py [--keep FOLDER]         # about five minutes on two cores

The commands stand in README.md behind `<!-- example … -->`. Of a training only the closing summary is shown, of an
evaluation the sentences below its table.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLE = re.compile(
    r"(<!-- example.*?```sh\n)(?P<commands>.*?)(```\n<!-- output -->\n)(?P<output>.*?)(<!-- end)", re.S
)


def commands(text: str) -> list[str]:
    """The commands of the example; one that has several lines stays together.

    >>> commands("<!-- example -->\\n```sh\\npython -c \\"\\n1\\"\\nicone methods\\n```\\n<!-- output -->\\n<!-- end")
    ['python -c "\\n1"', 'icone methods']
    """
    found = EXAMPLE.search(text)
    assert found is not None, "README.md has no example"
    lines: list[str] = []
    for line in found["commands"].splitlines():
        if lines and lines[-1].count('"') % 2:
            lines[-1] += "\n" + line
        else:
            lines.append(line)
    return lines


def shown(command: str, output: str) -> list[str]:
    """What README.md shows of a command's output."""
    lines = [line.rstrip() for line in output.splitlines()]
    if command.startswith("icone pretrain"):
        first, last = (next(i for i, line in enumerate(lines) if line.startswith(s)) for s in ("done:", "next"))
        lines = lines[first:last]
    elif command.startswith("icone evaluate"):
        lines = lines[1 + max(i for i, line in enumerate(lines) if line.startswith("└")) :]
    # How long it took says more about the machine, and what else it did, than about the example.
    return [line for line in lines if line and not line.startswith(("note:", "time ", "Training/test"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="an empty folder for the run and its report")
    keep: Path | None = parser.parse_args().keep
    text = README.read_text()
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "XDG_CACHE_HOME": tempfile.mkdtemp(),
    }
    output: list[str] = []
    with tempfile.TemporaryDirectory() if keep is None else nullcontext(keep) as folder:
        for command in commands(text):
            print(f"$ {command}", flush=True)
            said = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE
            ).stdout
            print(said, flush=True)
            if command.startswith("icone"):
                output += [f"$ {' '.join(command.split()[:2])} …", *shown(command, said)]
    block = "\n".join(["```", *output, "```", ""])
    README.write_text(EXAMPLE.sub(lambda found: "".join([*found.group(1, 2, 3), block, found[5]]), text))


if __name__ == "__main__":
    main()
