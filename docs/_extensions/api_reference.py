"""The reference of the site: the public names of a module, and docstrings in Markdown for Sphinx.

    ```{public-names} icone.nn
    ```

documents every public name of `icone.nn` with autodoc, under a table of their first sentences. Names inside the fence
choose some of them. What another package documents already gets a line that refers to it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Set
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

HOMES = ("icone", "icone.nn", "icone.methods")
"""Packages that document an object which several have, the first first: `icone.nn.IConELoss` is `icone.IConELoss`."""
FENCE = re.compile(r"^```\{public-names\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def public_names(module: str) -> list[str]:
    """The names in `__all__`; without it, what the module itself defines and documents without an underscore."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return sorted(found.__all__, key=str.lower)
    own = (name for name, value in vars(found).items() if getattr(value, "__module__", None) == module)
    documented = {name for name in own if vars(found)[name].__doc__} | constants(module).keys()
    return sorted((name for name in documented if not name.startswith("_")), key=str.lower)


def constants(module: str) -> dict[str, list[str]]:
    """The constants of a module that have a docstring, and its lines."""
    documented = ModuleAnalyzer.for_module(module).find_attr_docs()
    return {name: lines for (scope, name), lines in documented.items() if not scope}


def expand(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put directives of autodoc in the place of every fence `{public-names}` of a page."""
    source[0] = FENCE.sub(lambda fence: directives(fence[1], fence[2].split() or public_names(fence[1])), source[0])


def directives(module: str, names: list[str]) -> str:
    """A table of all names with their first sentences, then each with its whole docstring."""
    lines = ["```{eval-rst}", ".. list-table::", "   :widths: auto", ""]
    for name in names:
        text = " ".join(docstring(module, name)[0])
        sentence = re.match(r"(`[^`]*`|[^`])+?(?=[.:;]\s|[.:]?$)", text)  # no end of a sentence is inside code
        assert sentence is not None, text
        lines += [f"   * - :py:obj:`~{module}.{name}`", f"     - {inline(sentence[0])}."]
    for name in names:
        lines += ["", *entry(module, name)]
    return "\n".join([*lines, "```"])


def entry(module: str, name: str) -> list[str]:
    """The directive of one name, or a reference to where the same object is documented."""
    value = lookup(module, name)
    heading = [f".. py:data:: {name}", f"   :module: {module}"]
    before = HOMES[: HOMES.index(module)] if module in HOMES else HOMES
    for home in before:
        if name in public_names(home) and lookup(home, name) is value:
            return [*heading, "", f"   The same as :py:obj:`{home}.{name}`."]
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        signature = "()" if module == "icone.config" else ""  # fields stand below it, each with its default
        bases = ["   :show-inheritance:"] if value.__bases__ != (object,) else []
        return [f".. {kind}:: {module}.{name}{signature}", "   :members:", *bases]
    if inspect.isroutine(value):
        return [f".. autofunction:: {module}.{name}"]
    text = [f"   {line}" for line in rst([line for part in docstring(module, name) for line in [*part, ""]])]
    shown = [f"   :value: {value!r}"] if isinstance(value, int | float | str) else []
    return [*heading, *shown, "", *text]


def lookup(module: str, name: str) -> Any:
    """The object of this name; `icone.report` is a package that can be called like the function in it."""
    value = getattr(importlib.import_module(module), name)
    return value.report if inspect.ismodule(value) else value


def docstring(module: str, name: str) -> list[list[str]]:
    """The paragraphs of a docstring; that of a constant stands below its definition, in a module below."""
    value = lookup(module, name)
    if (inspect.isclass(value) or inspect.isroutine(value)) and (text := inspect.getdoc(value)):
        return list(paragraphs(text.splitlines()))
    below = [other for other in sys.modules if other == module or other.startswith("icone.")]
    for other in sorted(below, key=lambda other: not other.startswith(module)):
        if vars(sys.modules[other]).get(name) is value and name in (found := constants(other)):
            return list(paragraphs(found[name]))
    raise ValueError(f"{module}.{name} has no docstring: write one")


def markdown_to_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are Markdown, and Sphinx reads reStructuredText."""
    try:
        arguments = set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):  # nothing that can be called
        arguments = set()
    lines[:] = rst(lines, arguments)


def rst(lines: list[str], arguments: Set[str] = frozenset()) -> list[str]:
    """Paragraph by paragraph: examples stay, indented equations become blocks, `argument: …` an item of a list."""
    out: list[str] = []
    for paragraph in paragraphs(lines):
        if paragraph[0].startswith(">>>"):
            out += paragraph
        elif paragraph[0].startswith("    "):
            out += ["::", "", *paragraph]
        else:
            out += inline("\n".join(items(paragraph, arguments))).split("\n")
        out.append("")
    return out


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Lines between empty lines."""
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield paragraph
            paragraph = []


def items(paragraph: list[str], arguments: Set[str]) -> Iterator[str]:
    """A paragraph whose lines begin with arguments, as a list."""
    inside = False
    for line in paragraph:
        found = re.match(r"(\w+(?:, \w+)*): ", line)
        if found and set(found[1].split(", ")) <= arguments:
            inside = True
            yield "- " + ", ".join(f"`{name}`" for name in found[1].split(", ")) + line[found.end() - 2 :]
        else:
            yield f"  {line.strip()}" if inside else line


def inline(text: str) -> str:
    """Code in two backticks, and a backslash before characters that have a meaning in reStructuredText.

    >>> inline("`a_` of (C, *size)")
    '\\\\ ``a_``\\\\  of (C, \\\\*size)'
    """
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = [re.sub(r"([*|]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"\\ ``{part}``\\ " for part in parts[1::2]]  # an escaped space ends code inside a word
    return "".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", markdown_to_rst)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
