"""What errors and notes call a setting: `--label-column` on the command line, `label_column=` in Python.

A text is written once, with the flags of the command line, and a value follows its flag behind an equals sign:
`--size=64`. `in_user_terms` turns it into what the person who reads it can type. Exceptions do so when they become
text, and `icone.terminal.Terminal` when it prints. Text in backticks that is no command of ours stays as it is, and so
does a line from `icone VERB` on, which is a command to copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SWITCHES = frozenset({
    "adjust", "balance-classes", "clear", "dense", "extend", "freeze-patch-embed", "from-scratch", "no-labels",
    "official-test", "resume", "scratch", "skip-unreadable", "stop-on-collapse", "thumbnails", "untrained",
})  # fmt: skip
"""Flags without a value: in Python they are True or False."""
LISTS = frozenset({"exclude", "include"})
"""Flags that take several values: in Python they are a list."""
COMMAND_LINE_ONLY = frozenset({
    "check", "clear", "config", "debug", "devices", "duplicates", "import", "json", "names", "seeds", "smoke",
})  # fmt: skip
"""Flags that no argument of a function corresponds to."""
FUNCTIONS = ("embed", "evaluate", "export", "finetune", "inspect", "plan", "predict", "pretrain", "report")
"""Verbs that are functions of the same name in Python."""
OTHER_VERBS = ("cache", "demo", "fetch", "figures", "methods", "paper")

_VALUE = r"""(?:=(?P<value>"[^"]*"|'[^']*'|[^\s;,)`]*[^\s;,)`.:]))?"""
_FLAG = re.compile(rf"(?<![\w/-])--(?P<name>[a-z][a-z0-9-]*(?:\.[a-z][a-z0-9-]*)?)(?:(?P<rule> must be)|{_VALUE})")
_CALL = rf"`icone (?P<verb>{'|'.join(FUNCTIONS)})(?P<words> --[^`]*)?`"
_CODE = rf"`[^`\n]*`|\bicone (?:{'|'.join((*FUNCTIONS, *OTHER_VERBS))})\b.*"
_PART = re.compile(rf"(?P<call>{_CALL})|(?P<code>{_CODE})|{_FLAG.pattern}")


class _Reader:
    speaks_flags = False
    """Whether the person who reads has typed a command."""


@contextmanager
def command_line() -> Iterator[None]:
    """Within the block, whoever reads has typed a command, so that settings are flags."""
    before, _Reader.speaks_flags = _Reader.speaks_flags, True
    try:
        yield
    finally:
        _Reader.speaks_flags = before


def speaks_flags() -> bool:
    """Whether settings are called by the flags of the command line."""
    return _Reader.speaks_flags


def in_user_terms(text: str) -> str:
    """A text about flags as its reader can type it.

    >>> in_user_terms("a larger --size keeps them; --size=64 is enough, or --resume")
    'a larger size= keeps them; size=64 is enough, or resume=True'
    >>> with command_line():
    ...     in_user_terms("a larger --size keeps them; --size=64 is enough, or --resume")
    'a larger --size keeps them; --size 64 is enough, or --resume'
    """
    if "--" not in text and "`icone " not in text:
        return text
    return (_FLAG if speaks_flags() else _PART).sub(_as_flag if speaks_flags() else _in_python, text)


def all_in_user_terms(value: Any) -> Any:
    """What JSON can hold, with all texts in it as their reader can type them.

    >>> all_in_user_terms({"advice": "a smaller --lr", "seeds": [1, 2]})
    {'advice': 'a smaller lr=', 'seeds': [1, 2]}
    """
    if isinstance(value, str):
        return in_user_terms(value)
    if isinstance(value, dict):
        return {name: all_in_user_terms(part) for name, part in value.items()}
    return [all_in_user_terms(part) for part in value] if isinstance(value, list) else value


def _as_flag(found: re.Match[str]) -> str:
    value = found["value"]
    return found[0] if value is None else f"--{found['name']} {' '.join(_numbers(value)) or value}"


def _in_python(found: re.Match[str]) -> str:
    if found["code"]:
        return found[0]
    if found["call"]:
        settings = [_argument(flag, "…") for flag in _FLAG.finditer(found["words"] or "")]
        given = f"(…, {', '.join(settings)})" if settings else ""
        return f"`icone.{found['verb']}{given}`"
    return _argument(found)


def _argument(found: re.Match[str], missing: str = "") -> str:
    """A flag as a keyword argument; `missing` stands for a value that the text does not name.

    >>> [_argument(_FLAG.match(flag)) for flag in ("--no-untrained", "--channels=rgb", "--volume-views.rotate=0")]
    ['untrained=False', 'channels="rgb"', 'volume_views=VolumeViews(rotate=0)']
    """
    flag, value = found["name"], found["value"]
    name = flag.replace("-", "_")
    if found["rule"]:  # of `icone.validation`, which knows the setting by this name
        return f"{name}{found['rule']}"
    if flag in COMMAND_LINE_ONLY:
        return _as_flag(found)
    if value is None:
        if flag in SWITCHES:
            return f"{name}=True"
        if flag.removeprefix("no-") in SWITCHES:
            return f"{name.removeprefix('no_')}=False"
        return name if "." in name else f"{name}={missing}"
    if flag == "options":
        option, _, setting = value.partition("=")
        return f'options={{"{option}": {_literal(setting)}}}'
    if flag in LISTS:
        return f"{name}=[{_literal(value)}]"
    group, _, own = name.rpartition(".")
    if group:
        return f"{group}={group.title().replace('_', '')}({own}={_literal(value)})"
    return f"{name}={_literal(value)}"


def _literal(value: str) -> str:
    """A value as Python writes it.

    >>> _literal("64"), _literal("rgb"), _literal('"-160 240"')
    ('64', '"rgb"', '(-160, 240)')
    """
    if numbers := _numbers(value):
        return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"
    bare = value[1:-1] if value[0] in "\"'" else value
    return '"' + bare.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _numbers(value: str) -> list[str]:
    """The words of a value where all are numbers, else none."""
    words = value.strip("\"'").split()
    return words if words and all(re.fullmatch(r"-?\d[\d_]*(\.\d*)?(e[+-]?\d+)?", word) for word in words) else []


class InUserTerms(Exception):
    """An exception whose text says settings as its reader can type them."""

    def __str__(self) -> str:
        return in_user_terms(super().__str__())
