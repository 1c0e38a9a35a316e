"""Pages of the site from the notebooks in examples/: their text, their code, and what their cells show.

A notebook is run as a script, cell by cell, in a process and a folder of its own; Jupyter is not needed. Builds without
the gallery (`-D plot_gallery=0`) show text and code alone.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
PAGES = DOCS / "notebooks"


def write_pages(app: Any) -> None:
    """Write a page for every notebook before Sphinx reads the pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir()
    is_run = str(app.config.plot_gallery) not in ("0", "False")
    for notebook in sorted((DOCS.parent / "examples").glob("*.ipynb")):
        command = [sys.executable, __file__, str(notebook), str(PAGES / f"{notebook.stem}.md"), *["--run"] * is_run]
        subprocess.run(command, check=True)


def page(notebook: Path, target: Path, is_run: bool) -> str:
    """The Markdown of a notebook; pictures are saved beside the page."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = re.sub(r"\]\((?:\.\./docs/)?(\w[\w-]*)\.(?:md|ipynb)", lambda m: f"]({link(m)}", source)
            parts.append(text)
            continue
        parts.append(f"```python\n{source}\n```")
        if is_run:
            parts += run_cell(source, names, target.with_name(f"{target.stem}-{number}"))
    download = f"{{download}}`{notebook.name} <../../examples/{notebook.name}>` is this page as a notebook."
    return "\n\n".join([*parts[:1], download, *parts[1:]]) + "\n"


def link(found: re.Match[str]) -> str:
    """A link of a notebook, which lies in examples/, as it stands on its page in docs/notebooks."""
    return f"../{found[1]}.md" if "../docs/" in found[0] else f"{found[1]}.md"


def run_cell(source: str, names: dict[str, Any], picture: Path) -> list[str]:
    """Execute a cell; what it prints, the figures that it draws, and the value of its last line."""
    import matplotlib.pyplot as plt

    body = ast.parse(source).body
    last = body.pop().value if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last), "cell", "eval"), names)
    shown = [f"```\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue().strip() else []
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if isinstance(value, plt.Figure):
        figures.append(value)
    elif hasattr(value, "_repr_html_"):
        shown.append(f"```{{raw}} html\n{value._repr_html_()}\n```")
    elif value is not None:
        shown.append(f"```\n{value!r}\n```")
    for number, figure in enumerate(figures):
        file = picture.with_name(f"{picture.name}-{number}.png")
        figure.savefig(file, dpi=100)
        shown.append(f"![What the cell draws]({file.name})")
    plt.close("all")
    return shown


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"
    given, target = (Path(word).resolve() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = page(given, target, "--run" in sys.argv)
    target.write_text(text, encoding="utf-8")
