"""`--weights`: where the weights are that an encoder starts from. No code of a file is ever executed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
import shlex
import socket
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from icone.config import EncoderConfig, PretrainConfig, is_object
from icone.data import Preparation
from icone.encoders.pretrained import LoadedWeights, Statistics, for_channels, put_weights, renormalise
from icone.encoders.registry import encoder_name, timm_name
from icone.errors import InputError, one_line
from icone.run import Run
from icone.training.context import kept_random_state
from icone.validation import meant_path, user_path
from icone.views.image import normalisation

HUB = "hf-hub:"
RUN_ORIGIN = "the run "
"""How the origin of weights from another run begins, before its folder."""
MEDICALNET = "TencentMedicalNet/MedicalNet-Resnet"
"""The repositories of MedicalNet (Chen et al. 2019, arXiv:1904.00625) on the Hugging Face Hub, before the depth."""
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files with weights in a repository of the Hub, the first that is there is taken."""
FOLDER_FILES = (*HUB_FILES, "encoder.safetensors", "models/model.pt")
"""The same in a folder: of the Hub or timm, of ours, of a MONAI bundle."""
STATE_KEYS = ("state_dict", "model", "network_weights", "teacher")
"""Under which checkpoints of Lightning, timm, nnU-Net and DINO hold weights."""
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".tar")


class FoundWeights(NamedTuple):
    """What was found under the name of some weights, and where."""

    content: Mapping[str, Any]
    origin: str
    normalisation: Statistics | None = None
    """Mean and standard deviation by which the samples were normalised that they were trained on, where it is known."""


EXPORTED = {"config.json": "icone", "configs/icone.json": None}
"""Files of a folder that `icone export` writes, for the Hub and as a bundle, and where in them its network stands."""
NETWORK = ("encoder", "norm", "width", "features")
"""Settings that say what an encoder is."""


def with_network_of_weights(config: PretrainConfig, run: Run | None = None) -> PretrainConfig:
    """The configuration with the network of the run or export that `--weights` names, where it says none of its own.

    A `run` that goes on keeps the network that it took over, because the other may be gone by now. A network that the
    other was given as a Python object has no name to take over.
    """
    if config.weights is None or any(getattr(config, name) != getattr(EncoderConfig, name) for name in NETWORK):
        return config
    has_taken_over = run is not None and run.exists() and run.config.weights == config.weights
    network = _network_of(run) if run and has_taken_over else _stated_network(user_path(config.weights))
    return config if network is None or is_object(network["encoder"]) else dataclasses.replace(config, **network)


def _network_of(run: Run) -> dict[str, Any]:
    return {name: getattr(run.config, name) for name in NETWORK}


def _stated_network(weights: Path) -> dict[str, Any] | None:
    """The network of a run, of an export of ours, or of a file in the folder of one; None where nothing says it."""
    folder = weights.parent if weights.is_file() else weights
    if (other := origin_run(str(folder))) is not None:
        return _network_of(other)
    for name, key in EXPORTED.items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # others have such files with other content
            about = json.loads((folder / name).read_text(encoding="utf-8"))
            stated = (about if key is None else about[key])["encoder"]
            return {"encoder": stated["name"], **{each: stated[each] for each in NETWORK if each != "encoder"}}
    return None


def start_from_weights(encoder: nn.Module, config: PretrainConfig, preparation: Preparation) -> LoadedWeights:
    """Put the weights of a configuration into its encoder; random numbers stay as they were.

    Weights that were trained on samples normalised otherwise than views are here get another first layer, which
    computes of our samples what theirs computed of the same samples.
    """
    assert config.weights is not None
    with kept_random_state(torch.device("cpu")):
        found = find_weights(config.weights, config.encoder)
        channels = preparation.channels
        loaded = put_weights(encoder, found.content, origin=found.origin, in_channels=channels)
        if found.normalisation is None:
            return loaded
        theirs = for_channels(found.normalisation, channels, is_rgb=preparation.is_rgb)
        ours = normalisation(channels, is_rgb=preparation.is_rgb)
        if np.allclose(theirs, ours, atol=1e-3):
            return loaded
        mean, std = (", ".join(f"{value:g}" for value in values) for values in found.normalisation)
        about = f"these weights were trained on samples normalised by the mean {mean} and the standard deviation {std}"
        then = "the first layer has been changed so that it computes the same of samples normalised as here"
        if not renormalise(encoder, channels, theirs, ours):
            then = (
                f"here these see {np.mean(theirs[1]) / np.mean(ours[1]):.2g} times the contrast. The first layer has "
                "no bias or pads its input, so that it cannot be changed to make up for that. Training adapts it, and "
                "the encoder before training is measured so"
            )
        return dataclasses.replace(loaded, notes=[*loaded.notes, f"{about}: {then}"])


def find_weights(weights: str, encoder: str) -> FoundWeights:
    """The content of `timm`, `timm:TAG`, `hf-hub:OWNER/NAME`, `medicalnet`, a run, a folder or a file."""
    kind, _, tag = weights.partition(":")
    if kind == "timm":
        return _from_timm(encoder, tag)
    if weights == "medicalnet":
        return _from_medicalnet(encoder)
    if weights.startswith(HUB):
        return _from_hub(weights.removeprefix(HUB), HUB_FILES)
    path = user_path(weights)
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return FoundWeights(read_weights(path), str(path))
    raise InputError(
        f"--weights={shlex.quote(weights)}: there is no such file or folder{meant_path(path) or '.'} Known are "
        "timm, timm:TAG, hf-hub:OWNER/NAME, medicalnet, a run folder, a folder or a file with weights"
    )


def _from_timm(encoder: str, tag: str) -> FoundWeights:
    import timm

    name = timm_name(encoder)
    if name is None:
        raise InputError(f"--weights=timm is for encoders of timm, and {encoder} is none: give a file or a folder")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{name}.*")]
    if not tags or (tag and tag not in tags):
        what, known = (f"weights {tag}", f"; known are {', '.join(tags)}") if tags else ("weights", "")
        raise InputError(f"timm has no {what} for {name}{known}. Give a file or a folder, or another --encoder")
    about: Any = timm.get_pretrained_cfg(f"{name}.{tag}" if tag else name)
    if not about.hf_hub_id:
        raise InputError(f"the weights of {name} are not on the Hugging Face Hub: download {about.url}, give the file")
    found = _from_hub(about.hf_hub_id, (about.hf_hub_filename,) if about.hf_hub_filename else HUB_FILES)
    return found._replace(normalisation=(tuple(about.mean), tuple(about.std)))


def _from_medicalnet(encoder: str) -> FoundWeights:
    depth = {f"resnet{n}_3d": n for n in ("10", "18", "34", "50")}.get(encoder_name(encoder, 3))
    if depth is None:
        raise InputError(f"--weights=medicalnet is for resnet10_3d, 18, 34 and 50, and the encoder is {encoder}")
    return _from_hub(f"{MEDICALNET}{depth}", (f"resnet_{depth}_23dataset.pth", f"resnet_{depth}.pth"))


def _from_hub(repository: str, names: tuple[str, ...]) -> FoundWeights:
    """The first of these files that a repository of the Hub has (OWNER/NAME or OWNER/NAME@REVISION)."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    name, _, revision = repository.partition("@")
    offline = not _is_hub_reachable()
    for file in names:
        try:
            path = hf_hub_download(name, file, revision=revision or None, local_files_only=offline)
        except Exception as error:  # libraries for networks raise exceptions of their own
            if isinstance(error, EntryNotFoundError) and (offline or not isinstance(error, LocalEntryNotFoundError)):
                continue
            raise _not_downloaded(file, name, one_line(error)) from error
        stated = None
        with contextlib.suppress(Exception):  # there may be none, and the weights are what counts
            stated = hf_hub_download(name, "config.json", revision=revision or None, local_files_only=offline)
        statistics = None if stated is None else _stated_normalisation(Path(stated))
        return FoundWeights(read_weights(Path(path)), f"{HUB}{repository} ({file})", statistics)
    if offline:
        raise _not_downloaded(names[0], name, "there is no network, and no copy from before")
    raise InputError(f"{HUB}{repository} has no file {' or '.join(names)}: download its weights and give the file")


def _not_downloaded(file: str, repository: str, reason: str) -> InputError:
    return InputError(
        f"cannot get {file} of {repository} from the Hugging Face Hub: {reason}. Download the file where there is a "
        "network, and give it: --weights=FILE"
    )


def _is_hub_reachable() -> bool:
    """Whether the Hub's name is known: the library itself would try for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        return bool(getproxies() or socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443))
    except OSError:
        return False


def origin_run(weights: str) -> Run | None:
    """The run whose encoder `--weights` names; None where the weights are from elsewhere."""
    run = Run(user_path(weights))
    # a folder of the Hub has a config.json too
    return run if run.exists() and (run.folder / "instances.json").is_file() else None


def _from_folder(folder: Path) -> FoundWeights:
    if origin_run(str(folder)) is not None:
        return FoundWeights(Run(folder).trained_weights(), f"{RUN_ORIGIN}{folder}")
    files = [folder / name for name in FOLDER_FILES if (folder / name).is_file()]
    files = files[:1] or sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(files) != 1:
        found = f"has {len(files)} files with weights" if files else f"has no file {', '.join(SUFFIXES)}"
        name = shlex.quote(str(folder))
        raise InputError(f"--weights={name}: the folder is no run and {found}: give the file itself")
    return FoundWeights(read_weights(files[0]), str(files[0]), _stated_normalisation(folder / "config.json"))


def _stated_normalisation(config: Path) -> Statistics | None:
    """Mean and standard deviation that a config.json of timm names."""
    try:
        about = json.loads(config.read_text(encoding="utf-8"))["pretrained_cfg"]
        mean, std = (tuple(map(float, about[name])) for name in ("mean", "std"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (mean, std) if len(mean) == len(std) and all(value > 0 for value in std) else None


def read_weights(path: Path) -> Mapping[str, Any]:
    """Tensors by name, perhaps in dictionaries in dictionaries, from a file of safetensors or PyTorch.

    PyTorch's files are pickles. They are read as tensors and plain containers only; one that needs anything else, and
    so could run code of a stranger, is refused.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about old or foreign pickles, which are refused below
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle make the reader raise nearly anything
        if isinstance(error, pickle.UnpicklingError) and _is_pickle(path):
            raise InputError(
                f"{path} is a pickle that holds more than tensors, and opening it could run code. If you trust it, "
                f"convert it once: {conversion_command(path)}, and give {path.with_suffix('.safetensors')}"
            ) from error
        raise InputError(
            f"cannot read the weights {path}, it is damaged or of another kind: {one_line(error)}"
        ) from error
    if not isinstance(content, Mapping):
        raise InputError(f"{path} holds a {type(content).__name__} and not weights by name (a state_dict)")
    return content


def _is_pickle(path: Path) -> bool:
    """Whether a file begins like those of `torch.save` (a ZIP archive, formerly a bare pickle)."""
    with path.open("rb") as file:
        return file.read(2).startswith((b"PK", b"\x80"))


def conversion_command(path: Path) -> str:
    """A command line that turns a pickle of a network or of its weights into a safetensors file, and trusts it.

    >>> print(conversion_command(Path("a.pth")).partition(";")[0])
    python -c 'import torch, safetensors.torch as s
    """
    file, out = json.dumps(str(path)), json.dumps(str(path.with_suffix(".safetensors")))
    code = (
        f'import torch, safetensors.torch as s; c = torch.load({file}, map_location="cpu", weights_only=False); '
        f"c = next((c[k] for k in {json.dumps(STATE_KEYS)} if k in c), c) if isinstance(c, dict) else c; "
        'c = c.state_dict() if hasattr(c, "state_dict") else c; '
        f"s.save_file({{k: v.clone().contiguous() for k, v in c.items() if torch.is_tensor(v)}}, {out})"
    )
    return f"python -c {shlex.quote(code)}"
