"""From a configuration and the data's preparation to encoder, views and method; the same for training and inference."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import nn

from icone.api.data_defaults import BatchChoice
from icone.api.weights import start_from_weights
from icone.config import OBJECT, FinetuneConfig, ImageViews, PretrainConfig, VolumeViews, is_object
from icone.data import Data, Preparation, Source
from icone.data.memory import free_bytes
from icone.data.sources.objects import describe_object
from icone.encoders import (
    adopt_encoder,
    build_encoder,
    check_batch_norm,
    forward_flops,
    freeze_patch_embed,
    num_features,
)
from icone.encoders.pretrained import LOADED_WEIGHTS
from icone.encoders.registry import FEATURES
from icone.errors import InputError, NotEnoughMemory, is_out_of_memory, nearest_names
from icone.methods import Method, Setting, build_method, chosen_options, method_class, option_texts, register
from icone.nn import convert_batch_norm
from icone.process import is_launched, local_rank
from icone.recipe import DIVERSITY_FLOPS, SAMPLED_SHARE, initial_scale
from icone.run import Run
from icone.training.context import kept_random_state, seed_random_numbers
from icone.validation import refused
from icone.views import CropViews, CustomViews, Views, build_views
from icone.views.custom import ViewFunction


@dataclass(frozen=True, kw_only=True)
class Given:
    """Python objects that a caller gives in the place of settings; the configuration of a run only describes them."""

    encoder: nn.Module | None = None
    views: Views | ViewFunction | None = None
    method: Method | None = None


NOTHING = Given()
WITH_PLAIN = " with plain"
"""Ends the description of views that have a deterministic function of their own."""


def check_given(**given: Any) -> None:
    """`check_data` of arguments by their names, where they are given."""
    for flag, data in given.items():
        if data is not None:
            check_data(flag, data)


def check_data(flag: str, data: Any) -> None:
    """Refuse what is neither a text nor an object that could be data or labels, before anything is opened."""
    is_text = isinstance(data, (str, os.PathLike))
    if hasattr(data, "__iter__") and not hasattr(data, "__len__"):  # a generator, an IterableDataset
        raise InputError(f"{flag} of type {type(data).__name__} has no length: give a list, list({flag})")
    holds_samples = hasattr(data, "__len__") or isinstance(data, (Source, Image.Image))
    if (is_text and not os.fspath(data)) or not (is_text or holds_samples):
        raise refused(flag, repr(data), "a path, a name or an object that holds samples or labels")


def join_settings(settings: Mapping[str, Any], described: Mapping[str, Any]) -> tuple[PretrainConfig, BatchChoice]:
    """The configuration of `icone.pretrain` and `icone.plan`, and how its batch size is chosen.

    `described` is what `describe_objects` says. A batch size that is still to be chosen is 1 until then.
    """
    check_known(settings, PretrainConfig)
    batch = settings.get("batch_size")
    choice: BatchChoice = "by data" if batch is None else "by plan" if batch == "auto" else "given"
    return PretrainConfig(**{**settings, **described, "batch_size": batch if choice == "given" else 1}), choice


def check_known(settings: Collection[str], config: type[Any]) -> None:
    """Refuse keyword arguments that are no settings of a configuration; the sentence says which were perhaps meant."""
    known = {f.name for f in dataclasses.fields(config)}
    unknown = set(settings) - known
    if not unknown:
        return
    near = [name for one in sorted(unknown) for name in nearest_names(one, known, most=1)]
    meant = f"; did you mean {', '.join(near)}?" if near else "."
    listed = "" if len(near) == len(unknown) else f" Known: {', '.join(sorted(known))}"
    raise InputError(f"unknown settings: {', '.join(sorted(unknown))}{meant}{listed}")


def describe_objects(
    source: Any, encoder: Any, views: Any, num_views: int | None, method: Any, options: Any, labels: Any
) -> tuple[dict[str, Any], Given]:
    """What the configuration says about the arguments of `icone.pretrain`, and those that are objects."""
    check_data("source", source)
    check_given(labels=labels)
    settings: dict[str, Any] = {
        "source": describe_source(source),
        "encoder": encoder,
        "options": option_texts(options) if isinstance(options, Mapping) else options,
        "labels": labels if isinstance(labels, (str, os.PathLike)) else None,
    }
    network = built = function = None
    if isinstance(method, Method):
        if not isinstance(encoder, str) or encoder != "auto" or options:
            raise InputError("a method that is built already has its encoder and options: leave the two out")
        built, network = method, method.encoder
        method = type(method)
    elif isinstance(encoder, nn.Module):
        network = encoder
    elif not isinstance(encoder, str):
        raise InputError(f"encoder must be a name or an nn.Module, got {type(encoder).__name__}")
    if network is not None:
        settings["encoder"] = OBJECT + _class_path(network)
    if isinstance(method, type) and issubclass(method, Method):
        settings["method"] = register(method).name
    elif isinstance(method, str):
        settings["method"] = method
    else:
        raise InputError(f"method must be a name, a class or an instance of a Method, got {method!r}")
    if callable(views) and not isinstance(views, type):
        function = views
        plain = WITH_PLAIN if isinstance(views, Views) or hasattr(views, "plain") else ""
        settings |= {"pipeline": f"{OBJECT}{_class_path(views)}{plain}", "views": 2 if num_views is None else num_views}
    else:
        settings["views"] = views if num_views is None else num_views
    return settings, Given(encoder=None if built else network, views=function, method=built)


def describe_source(data: Any) -> str:
    """What a configuration says about data: its path or name, or what the object is."""
    return os.fspath(data) if isinstance(data, (str, os.PathLike)) else OBJECT + describe_object(data)


def _class_path(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def make_encoder(config: PretrainConfig, preparation: Preparation, given: Given = NOTHING) -> nn.Module:
    """An untrained encoder with the weights of the configuration's seed; leaves the generator of the CPU seeded.

    One that was given is copied, with the weights that it has.
    """
    encoder = _encoder(config, preparation, given)
    if config.freeze_patch_embed:
        freeze_patch_embed(encoder)
    return encoder


def _encoder(config: PretrainConfig, preparation: Preparation, given: Given) -> nn.Module:
    seed_random_numbers(config.seed, torch.device("cpu"))
    if is_object(config.encoder):
        if given.encoder is None:
            raise give_again("encoder", config.encoder)
        return adopt_encoder(given.encoder, in_channels=preparation.channels, size=preparation.size)
    if given.encoder is not None:
        raise InputError(f"the run has the encoder {config.encoder} and builds it by itself: leave encoder out")
    return build_encoder(
        config.encoder,
        in_channels=preparation.channels,
        spatial_dims=preparation.spatial_dims,
        size=preparation.size,
        norm=config.norm,
        width=config.width,
        features=config.features,
    )


def make_views(config: PretrainConfig, preparation: Preparation, given: Given = NOTHING) -> Views:
    """The pipeline of the configuration, or what was given in its place; with `--crop`, of crops."""
    if preparation.crops:
        whole = dataclasses.replace(preparation, crops=False)
        return CropViews(make_views(_without_crops(config), whole, given), config.crop_overlap)
    if is_object(config.pipeline):
        if given.views is None:
            raise give_again("views", config.pipeline)
        if isinstance(given.views, Views):
            return given.views
        return CustomViews(given.views, (preparation.channels, *preparation.size))
    return build_views(
        config,
        spatial_dims=preparation.spatial_dims,
        channels=preparation.channels,
        size=preparation.size,
        is_rgb=preparation.is_rgb,
    )


def _with_views(config: PretrainConfig, image: Mapping[str, Any], volume: Mapping[str, Any]) -> PretrainConfig:
    """A configuration with other settings of its views of images and of volumes."""
    image_views = dataclasses.replace(config.image_views, **image)
    return dataclasses.replace(
        config, image_views=image_views, volume_views=dataclasses.replace(config.volume_views, **volume)
    )


def _without_crops(config: PretrainConfig) -> PretrainConfig:
    """A configuration whose views take no crops, unless their scale was set to another than the default."""
    whole = {"crop_scale": (1.0, 1.0)}
    image = whole if config.image_views.crop_scale == ImageViews.crop_scale else {}
    return _with_views(config, image, whole if config.volume_views.crop_scale == VolumeViews.crop_scale else {})


def make_training_views(config: PretrainConfig, preparation: Preparation, given: Given = NOTHING) -> Views:
    """The pipeline that training draws from: crops, flips and turns alone where the method's option says so.

    Evaluation keeps `make_views`, so that recognition compares methods by the same views. Views that were given as an
    object are left as they are.
    """
    options = chosen_options(config.method, config.options, config.recipe)
    if options.get("intensity_views", True):
        return make_views(config, preparation, given)
    return make_views(without_intensities(config), preparation, given)


def without_intensities(config: PretrainConfig) -> PretrainConfig:
    """A configuration whose views are crops, flips and turns alone."""
    volume = {"shift": 0.0, "contrast": (1.0, 1.0), "noise": 0.0, "blur": 0.0}
    return _with_views(config, {"jitter": 0.0, "grayscale": 0.0, "blur": 0.0}, volume)


SMALLEST_CROP = 0.5
"""Share of a sample that a weak crop keeps at least: what decides its label should be in it."""


def make_weak_views(config: PretrainConfig, preparation: Preparation, given: Given = NOTHING) -> Views:
    """The views of fine-tuning: crops of half of a sample or more, flips and turns of the run, no intensities.

    A label may be in the colour or the contrast, which pretraining learns to ignore. Views that were given as an object
    are left as they are.
    """
    weaker = without_intensities(_without_crops(config) if preparation.crops else config)
    image, volume = ({"crop_scale": _weak(views.crop_scale)} for views in (weaker.image_views, weaker.volume_views))
    return make_views(_with_views(weaker, image, volume), preparation, given)


def _weak(crop_scale: tuple[float, float]) -> tuple[float, float]:
    low, high = (max(SMALLEST_CROP, bound) for bound in crop_scale)
    return low, high


def give_again(what: str, described: str, call: str = "icone.pretrain(…, {}=…, resume=True)") -> InputError:
    """Say that a run needs an object again, in a call that has `{}` in the place of the argument."""
    name = described.removeprefix(OBJECT)
    return InputError(
        f"the run was given its {what} as a Python object ({name}), which no file holds: give it again in Python, "
        f"{call.format(what)}"
    )


def given_objects(run: Run, encoder: nn.Module | None, views: Any, call: str) -> Given:
    """Encoder and views that a `call` was given for a run, else those that the run remembers from `icone.pretrain`."""
    encoder = run.objects.get("encoder") if encoder is None else encoder
    views = run.objects.get("views") if views is None else views
    if is_object(run.config.encoder) and encoder is None:
        raise give_again("encoder", run.config.encoder, call)
    if run.config.pipeline.endswith(WITH_PLAIN) and views is None:
        raise give_again("views", run.config.pipeline, call)
    return Given(encoder=encoder, views=views)


def make_method(
    config: PretrainConfig,
    data: Data,
    given: Given = NOTHING,
    *,
    from_state: bool = False,
    first_lr: float | None = None,
) -> Method:
    """The method with its encoder, on the CPU, initialised from the configuration's seed.

    The encoder starts from the weights of the configuration, unless a saved state replaces them anyway. `first_lr` is
    the learning rate that a run began with, where it has another now: its anchors have the scale of the first.
    """
    preparation, train = data.preparation, data.train
    if given.method is not None:
        if config.weights is not None:
            raise InputError("a method that is built already has its encoder with its weights: leave weights out")
        return _adopt_method(given.method, config, len(train), preparation)
    encoder = make_encoder(config, preparation, given)
    if config.weights is not None and not from_state:
        setattr(encoder, LOADED_WEIGHTS, start_from_weights(encoder, config, preparation))
    at_once = min(config.batch_size, config.micro_batch or config.batch_size)
    if config.recipe != "paper":
        encoder = convert_batch_norm(encoder, at_once)
    rows = partial(method_class(config.method).encoder_rows, num_views=config.views)
    # Micro-batches are of nearly equal size, also those of a smaller batch at the end of an epoch.
    smallest_pass = at_once if at_once == config.batch_size else (at_once + 1) // 2
    fewest = check_batch_norm(encoder, (preparation.channels, *preparation.size), rows(smallest_pass))
    setting = Setting(
        num_instances=len(train),
        batch_size=config.batch_size,
        num_views=config.views,
        epochs=config.epochs,
        diversity_flops=_diversity_flops(encoder, config, preparation),
        sampled_share=SAMPLED_SHARE[_processor(config)],
        initial_scale=initial_scale(config.lr if first_lr is None else first_lr, config.recipe),
        sample_shape=(preparation.channels, *preparation.size),
        labels=train.labels if (train.labels >= 0).all() else None,
        num_classes=len(train.class_names),
    )
    method = build_method(config.method, encoder, setting, config.options, config.recipe)
    of_encoder = next(batch_size for batch_size in itertools.count(1) if rows(batch_size) >= fewest)
    method.smallest_batch = max(method.smallest_batch, of_encoder)
    return method


def _diversity_flops(encoder: nn.Module, config: PretrainConfig, preparation: Preparation) -> float:
    """What a step can afford for the diversity loss: what its encoder takes, or a little more on a fast device."""
    return max(config.batch_size * sample_flops(encoder, config, preparation), DIVERSITY_FLOPS[_processor(config)])


def sample_flops(encoder: nn.Module, config: PretrainConfig, preparation: Preparation) -> int:
    """Floating-point operations of the encoder when it trains on all views of one sample."""
    forward = _forward_flops(encoder, config, (preparation.channels, *preparation.size))
    return 3 * config.views * forward  # a backward pass takes twice the forward pass


def _processor(config: PretrainConfig) -> str:
    """The kind of device in the words of the recipe: cpu, or cuda for whatever is faster."""
    return "cpu" if pick_device(config.device).type == "cpu" else "cuda"


_COUNTED: dict[tuple[object, ...], int] = {}
"""Operations of a forward pass, by what determines an encoder that has a name: runs of a sweep count them once."""


def _forward_flops(encoder: nn.Module, config: PretrainConfig, shape: tuple[int, ...]) -> int:
    if is_object(config.encoder):
        return forward_flops(encoder, shape)
    known = (config.encoder, config.norm, config.width, config.features, shape)
    if known not in _COUNTED:
        _COUNTED[known] = forward_flops(encoder, shape)
    return _COUNTED[known]


def _adopt_method(method: Method, config: PretrainConfig, samples: int, preparation: Preparation) -> Method:
    """Our own copy of a method that a caller has built; it must be made for this data and batch size."""
    setting = method.setting
    wanted = {"num_instances": samples, "batch_size": config.batch_size, "num_views": config.views}
    for name, value in wanted.items():
        if getattr(setting, name) != value:
            raise InputError(
                f"the method was built with Setting({name}={getattr(setting, name)}), but this run has {value}: "
                f"build it with Setting({', '.join(f'{key}={number}' for key, number in wanted.items())})"
            )
    own = copy.deepcopy(method).cpu()
    adopted = adopt_encoder(own.encoder, in_channels=preparation.channels, size=preparation.size)
    setattr(own.encoder, FEATURES, num_features(adopted))
    seed_random_numbers(config.seed, torch.device("cpu"))
    return own


def autocast_dtype(config: PretrainConfig | FinetuneConfig, device: torch.device) -> torch.dtype | None:
    """What the encoder computes in, where that is not float32."""
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else None
    return torch.bfloat16 if config.precision == "bf16" else None


def pick_device(name: str) -> torch.device:
    """The device of this name, which this PyTorch and this machine must have; of several GPUs that of this rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and is_launched():
        name = f"cuda:{local_rank()}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}: use cpu, cuda or cuda:1") from error
    backend: Any = getattr(torch, device.type, None)  # torch.cuda, torch.mps, torch.xpu, …
    is_there = device.type == "cpu" or (hasattr(backend, "is_available") and backend.is_available())
    count = backend.device_count() if is_there else 0
    if count == 0:
        raise InputError(f"this machine has no {device.type} device that PyTorch can use: --device=cpu")
    if (device.index or 0) >= count:
        raise InputError(f"there is no {device}: the last is {device.type}:{count - 1}")
    return device


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Leave the caller's random generators as they were."""
    with kept_random_state(device):
        yield


@contextlib.contextmanager
def memory_errors(training: PretrainConfig | None = None) -> Iterator[None]:
    """Turn an allocation that failed into a sentence with numbers and what would help; `training`: the settings."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        on_gpu = "CU" in str(error)  # CUDA, CUBLAS, CUDNN
        helps = ", ".join(_less_memory(training, on_gpu))
        raise NotEnoughMemory(f"not enough memory ({_in_use(str(error), on_gpu)}). What helps: {helps}") from error


def _in_use(reason: str, on_gpu: bool) -> str:
    """What was asked for, what is in use and what is free, in gigabytes."""
    asked = re.search(r"Tried to allocate [\d.]+ \w+", reason) or re.search(r"allocate \d+ bytes", reason)
    words = asked[0][0].lower() + asked[0][1:] if asked else (reason.splitlines() or ["allocation failed"])[0]
    if not (on_gpu and torch.cuda.is_available()):
        return f"{words}; {free_bytes() / 1e9:.1f} GB are free"
    free, total = torch.cuda.mem_get_info()
    held, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    others = max(0, total - free - reserved)
    return (
        f"{words} on the GPU; this run holds {held / 1e9:.1f} GB and has reserved {reserved / 1e9:.1f}, others have "
        f"{others / 1e9:.1f}, and {free / 1e9:.1f} of {total / 1e9:.1f} GB are free"
    )


def _less_memory(training: PretrainConfig | None, on_gpu: bool) -> list[str]:
    """Flags that take less memory than these settings, those that cost least first."""
    if training is None:
        return ["a smaller --batch-size or --size", "a smaller encoder", "--memory-gb=0 to read files anew"]
    flags = []
    at_once = min(training.batch_size, training.micro_batch or training.batch_size)
    if on_gpu and training.precision == "fp32":
        flags.append("--precision=bf16")
    if at_once > 1:
        flags.append(f"--micro-batch={at_once // 2} (now {at_once} samples pass through the encoder at a time)")
    tried = training.checkpoint_activations == "on" or (on_gpu and training.checkpoint_activations == "auto")
    flags += [] if tried else ["--checkpoint-activations=on"]
    size = "" if training.size is None else f" (now {training.size})"
    flags += [f"a smaller --size{size} or encoder", "--memory-gb=0 to read files anew instead of keeping them"]
    return flags
