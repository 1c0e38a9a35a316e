"""Self-supervised image and volume encoders that train at batch size 1."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib
import itertools
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from icone.cli.check import CacheVerb, Evaluate, Figures, Report
from icone.cli.given_files import config_file, import_extensions, read_config
from icone.cli.help_text import asks_for_help, check_flags, show_help
from icone.cli.learn import Demo, Fetch, Finetune, Inspect, Methods, PlanVerb, Pretrain
from icone.cli.use import Embed, Export, Predict
from icone.config import DataConfig
from icone.errors import (
    InputError,
    InterruptedRun,
    LostRank,
    TrainingError,
    is_out_of_memory,
    one_line,
    type_and_line,
    unknown_name,
)
from icone.find_runs import NoRun, is_finetuned, is_pretrained, no_run
from icone.paper.commands import Paper
from icone.process import configure_process, is_launched, is_silent, sigterm_interrupts
from icone.terminal import Terminal, say, standard_streams
from icone.validation import check_settings
from icone.wording import command_line

TASKS: dict[str, dict[str, type[Any]]] = {
    "Learn": {
        "fetch": Fetch,
        "inspect": Inspect,
        "plan": PlanVerb,
        "pretrain": Pretrain,
        "finetune": Finetune,
        "methods": Methods,
        "demo": Demo,
    },
    "Use": {"embed": Embed, "predict": Predict, "export": Export},
    "Check": {"evaluate": Evaluate, "report": Report, "figures": Figures, "cache": CacheVerb},
    "Paper": {"paper": Paper},
}
"""The verbs, as `icone --help` lists them."""
COMPUTING = ("plan", "inspect", "pretrain", "finetune", "demo", "embed", "predict", "export", "evaluate", "report")
"""Verbs that begin with the import of PyTorch."""
OF_ONE_RUN = ("finetune", "embed", "predict", "export", "evaluate")
"""Verbs whose first word is a run; `report` and `figures` take several."""
VERBS = {name: kind for verbs in TASKS.values() for name, kind in verbs.items()}


def _command(verbs: Mapping[str, type[Any]]) -> Any:
    """The type of which tyro makes the parser of all verbs."""
    return reduce(or_, (Annotated[kind, tyro.conf.subcommand(name)] for name, kind in verbs.items()))


Command: Any = _command(VERBS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code.

    0: done. 1: runs of a sweep have failed. 2: something given is wrong, or a file or disk refuses. 3: training cannot
    go on. 70: a mistake of ours. 74: standard output could not be written. 75: a sweep has reached its time limit, and
    the same command goes on. 130: interrupted.
    """
    configure_process()
    words = list(sys.argv[1:] if arguments is None else arguments)
    with command_line(), standard_streams() as output:
        try:
            code = _run(words, Terminal(stderr=True))
        except SystemExit as end:  # flags that cannot be parsed, --help
            code = end.code if isinstance(end.code, int) else 0
        output.flush()
        if output.error is None:
            return code
        say(Terminal(stderr=True), f"error: cannot write to standard output ({one_line(output.error)})")
        return code or 74


def _run(words: Sequence[str], errors: Console) -> int:
    """The boundary: whatever a command raises becomes a sentence and an exit code."""
    try:
        _check_words(words)
        if list(words) == ["--version"]:
            say(Terminal(), _version())
            return 0
        if asks_for_help(words):
            return show_help(words, TASKS, __doc__ or "", Terminal())
        command = _parsed(import_extensions(words))
        check_settings(command.verb if isinstance(command, Paper) else command)
        if isinstance(command, Pretrain) and command.devices > 1 and not is_launched():
            return command.launch(words, errors)
        console = Terminal(quiet=is_silent())
        with contextlib.nullcontext() if is_launched() else sigterm_interrupts():  # torchrun ends its processes itself
            if words[0] in COMPUTING:
                with console.status("loading PyTorch"):  # seconds, in which nothing else would be seen
                    importlib.import_module("icone.api.pretrain")
            command.run(console)
        return 0
    except InterruptedRun as error:
        if not is_silent():
            say(errors, f"{error}. {_way_on(words)}")
        return 130
    except KeyboardInterrupt:
        if not is_silent():
            own = not is_launched() or "ICONE_LAUNCHER" in os.environ  # how torchrun was called we do not know
            say(errors, "interrupted" + (f". Begin again with: {shlex.join(['icone', *words])}" if own else ""))
        return 130
    except Exception as error:  # the last place where a person can be told in a sentence
        if "--debug" in words:
            raise
        if isinstance(error, LostRank) and error.is_said:
            return 3
        sentence, code = _explained(error)
        if isinstance(error, NoRun):
            sentence += _with_run(words, error)
        if is_silent():
            time.sleep(PAUSE)  # rank 0 has most likely the same to say, and this process is ended meanwhile
            sentence = f"rank {os.environ['RANK']}: {sentence}"
        say(errors, sentence)
        return code


def _parsed(words: Sequence[str]) -> Any:
    """The verb with its settings: those of --config, and of the command line, which win."""
    if words[0].startswith("--tyro-"):
        from icone.cli.completion import for_completion  # the names of all encoders take seconds

        verbs = {name: for_completion(kind) for name, kind in VERBS.items() if kind is not Paper}
        without_prefix: Any = tyro.conf.OmitSubcommandPrefixes
        of_paper = without_prefix[_command({name: for_completion(kind) for name, kind in Paper.VERBS.items()})]
        about = {"__doc__": Paper.__doc__}
        verbs["paper"] = dataclasses.make_dataclass("Paper", [("verb", of_paper)], namespace=about)
        return tyro.cli(_command(verbs), prog="icone", args=words, description=__doc__)
    kind = VERBS.get(words[0])
    if kind is Paper and words[1:2] and words[1] in Paper.VERBS:
        check_flags(words[2:], f"paper {words[1]}", Paper.VERBS[words[1]])
    elif kind is not None and kind is not Paper:
        check_flags(words[1:], words[0], kind)
    file = config_file(words)
    if kind is None or file is None or not issubclass(kind, DataConfig):
        return tyro.cli(Command, prog="icone", args=words, description=__doc__)
    return tyro.cli(kind, prog=f"icone {words[0]}", args=words[1:], default=read_config(file, kind, Pretrain))


def _version() -> str:
    """What a report of a mistake should name, as the packages are installed: importing torch takes seconds."""
    import platform
    from importlib.metadata import version

    from icone.recipe import RECIPE_VERSION

    return (
        f"icone {version('icone')} (recipe {RECIPE_VERSION}), torch {version('torch')}, "
        f"Python {platform.python_version()}"
    )


PAUSE = 5.0
"""Seconds after which a rank speaks of its own error, if it is still there."""


def _explained(error: Exception) -> tuple[str, int]:
    """What to tell a person about an error, and the exit code."""
    if isinstance(error, InputError):
        return f"error: {error}", 2
    if isinstance(error, TrainingError):
        return f"training stopped: {error}", 3
    if isinstance(error, OSError) and (error.filename or error.errno in REFUSED_BY_THE_SYSTEM):
        return f"error: {_refusal(error)}", 2
    if is_out_of_memory(error):
        return f"error: not enough memory ({one_line(error)})", 2
    return (
        f"error: this is a mistake of icone, not yours ({type_and_line(error)}). "
        f"The traceback is in {_write_traceback(error)}: please report it",
        70,
    )


REFUSED_BY_THE_SYSTEM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)


def _refusal(error: OSError) -> str:
    paths = " and ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
    reason = error.strerror or one_line(error)
    return f"cannot use {paths}: {reason}" if paths else reason


def _write_traceback(error: Exception) -> str:
    try:
        number, name = tempfile.mkstemp(prefix="icone-traceback-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError as refusal:
        return f"nowhere, because the temporary folder refuses it ({one_line(refusal)}); --debug shows it"
    return name


def _check_words(words: Sequence[str]) -> None:
    """Refuse empty words, which would be taken for the current folder, and verbs that do not exist."""
    for verb, known in ((words[:1], VERBS), (words[1:2] if words[:1] == ["paper"] else [], Paper.VERBS)):
        if verb and verb[0] not in known and not verb[0].startswith("-"):
            raise unknown_name("command", verb[0], known, ". `icone --help` says what they do")
    if len(words) == 1 and words[0] in OF_ONE_RUN:
        of_run = "a RUN folder", is_pretrained
        what, wanted = ("a FOLDER of icone finetune", is_finetuned) if words[0] == "predict" else of_run
        raise no_run(None, f"icone {words[0]} needs {what}", wanted)
    for before, word in zip(["", *words], words, strict=False):
        if word == "" or (word.startswith("--") and word.endswith("=")):
            flag = word.rstrip("=") or (before if before.startswith("--") else "an argument")
            raise InputError(f"{flag} is empty: give a value, or leave it out")


def _with_run(words: Sequence[str], error: NoRun) -> str:
    """The same command with a run that is there in place of what is none; nothing where there is no run."""
    if error.instead is None:
        return ""
    named = itertools.takewhile(lambda word: not word.startswith("-"), words[1:])
    if sum(not Path(word).exists() for word in named) > 1:
        return ""  # an example would name another that does not exist
    given = [error.folder is not None and Path(word) == error.folder for word in words]
    put = [str(error.instead) if is_given else word for word, is_given in zip(words, given, strict=True)]
    put = put if any(given) else [*put[:1], str(error.instead), *put[1:]]
    return f"{'' if str(error).endswith('?') else '.'} For example: {shlex.join(['icone', *put])}"


def _way_on(words: Sequence[str]) -> str:
    """How to go on with what was interrupted; how torchrun was called we do not know."""
    if is_launched() and "ICONE_LAUNCHER" not in os.environ:
        return "Go on with the same command and --resume"
    return f"Go on with: {shlex.join(['icone', *_to_go_on(words)])}"


def _to_go_on(words: Sequence[str]) -> list[str]:
    if words[:1] in (["paper"], ["demo"], ["evaluate"]):  # these go on where they were; a demo begins again
        return [*words]
    return [*words] if "--resume" in words else [*(w for w in words if w != "--extend"), "--resume"]
