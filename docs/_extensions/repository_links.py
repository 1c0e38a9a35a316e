"""Pages are plain Markdown that a Git host shows as it is. Here their links become links of the site.

- CONTRIBUTING.md and CHANGELOG.md are pages: `docs/contributing.md` and `docs/changelog.md` include them.
- examples/gallery is the gallery, which sphinx-gallery makes of its scripts; notebooks of examples/ are pages too.
- Other files of the repository are downloads, and a folder stays as text, because it has no page.
- The navigation follows the pages that give an overview: each section of theirs is a toctree of the pages it links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/gallery": "gallery/index.rst",
}
"""What is outside docs/, and the page of the site that holds it."""
OVERVIEWS = ("index", "api", "decisions")
"""Pages whose links are the navigation."""
INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    """Include what a page includes, turn its links, and let those of an overview be the navigation."""
    page = Path(app.env.doc2path(docname)).resolve()
    origin = page.parent  # what the links are relative to
    if include := INCLUDE.search(source[0]):
        included = joined(origin, include[1])
        app.env.note_dependency(str(included))
        source[0] = source[0].replace(include[0], included.read_text(encoding="utf-8"))
        origin = included.parent
    parts = FENCED.split(source[0])  # text and fenced code take turns
    parts[::2] = [LINK.sub(lambda link: turned(link, origin, page.parent), text) for text in parts[::2]]
    source[0] = "".join(parts) + (navigation("".join(parts)) if docname in OVERVIEWS else "")


def turned(link: re.Match[str], origin: Path, page_folder: Path) -> str:
    """One Markdown link as it stands on a page of the site."""
    text, target, heading = link.groups(default="")
    if ":" in target:  # another site
        return link[0]
    path = joined(origin, target)
    if DOCS not in path.parents and (page := PAGES.get(os.path.relpath(path, DOCS.parent))):
        path = DOCS / page
    elif DOCS not in path.parents and path.suffix == ".ipynb":
        path = DOCS / "notebooks" / f"{path.stem}.md"
    elif path.is_dir():
        return text
    elif path.is_file() and DOCS not in path.parents:
        return f"{{download}}`{text.strip('`')} <{os.path.relpath(path, page_folder)}>`"
    return f"[{text}]({os.path.relpath(path, page_folder)}{heading})"


def joined(folder: Path, target: str) -> Path:
    """The path that a relative link means; links of the file system stay as they are."""
    return Path(os.path.normpath(folder / target))


def navigation(text: str) -> str:
    """A hidden toctree for every section, of the pages that it links, in their order."""
    toctrees = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        links = [link.groups() for link in LINK.finditer(section)]
        pages = [f"{text} <{page}>" for text, page, heading in links if page.endswith((".md", ".rst")) and not heading]
        toctrees.append("\n".join(["", "```{toctree}", f":caption: {title}", ":hidden:", "", *pages, "```", ""]))
    return "\n".join(toctrees)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
