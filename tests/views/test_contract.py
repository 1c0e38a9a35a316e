"""What all pipelines share: shapes, seeds, the step contract, their description and their errors."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from icone.config import ImageViews, PointViews, ViewsConfig, VolumeViews
from icone.errors import InputError
from icone.views import Views, build_views
from icone.wording import command_line

KINDS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "rgb": (2, 3, (24, 24)),
    "gray": (2, 1, (24, 32)),
    "channels": (2, 5, (24, 24)),
    "volume": (3, 1, (8, 8, 8)),
    "flat volume": (3, 2, (6, 8, 8)),
    "points": (0, 2, ()),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(kind: str, config: ViewsConfig | None = None) -> Views:
    spatial_dims, channels, size = KINDS[kind]
    return build_views(config or ViewsConfig(), spatial_dims=spatial_dims, channels=channels, size=size)


def samples(kind: str, count: int) -> Tensor:
    """The same sample `count` times, so that views differ by chance alone."""
    _, channels, size = KINDS[kind]
    sample = torch.rand(1, channels, *size, generator=torch.Generator().manual_seed(3))
    stored = sample if kind == "points" else (sample * 255).byte()
    return stored.repeat(count, *[1] * (stored.ndim - 1))


@pytest.mark.parametrize(("batch", "num_views"), [(1, 2), (3, 4), (5, 1)])
def test_shapes_and_dtypes(kind: str, batch: int, num_views: int) -> None:
    _, channels, size = KINDS[kind]
    views, images = make(kind), samples(kind, batch)
    seen, plain = views(images, num_views), views.plain(images)
    assert seen.shape == (batch, num_views, channels, *size)
    assert plain.shape == (batch, channels, *size)
    assert seen.dtype == plain.dtype == torch.float32
    assert seen.isfinite().all()


def test_same_seed_same_views_bit_for_bit(kind: str) -> None:
    views, images = make(kind), samples(kind, 3)
    torch.manual_seed(5)
    one = views(images, 2)
    other = views(images, 2)
    torch.manual_seed(5)
    again = make(kind)(images, 2)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_views_of_all_instances_differ(kind: str) -> None:
    seen = make(kind)(samples(kind, 3), 3).flatten(0, 1).flatten(1)
    distance = torch.cdist(seen, seen) + torch.eye(len(seen))
    assert distance.min() > 1e-3


def test_views_stay_with_their_instance() -> None:
    """(b, v) is a view of sample b, and of no other."""
    images = torch.arange(4.0)[:, None].repeat(1, 2) * 100
    seen = make("points")(images, 3)
    assert (seen.round(decimals=-2) == images[:, None]).all()


def test_plain_views_are_deterministic(kind: str) -> None:
    views, images = make(kind), samples(kind, 2)
    before = torch.get_rng_state()
    assert torch.equal(views.plain(images), views.plain(images))
    assert torch.equal(before, torch.get_rng_state())


def test_point_views_add_noise_of_the_given_size() -> None:
    points = torch.zeros(20_000, 2)
    noise = make("points", ViewsConfig(point_views=PointViews(noise_sigma=0.3)))(points, 2)
    assert abs(noise.std().item() - 0.3) < 5 * 0.3 / math.sqrt(2 * noise.numel())
    assert abs(noise.mean().item()) < 5 * 0.3 / math.sqrt(noise.numel())
    assert abs((noise[:, 0] * noise[:, 1]).mean().item()) < 5 * 0.09 / math.sqrt(noise.numel() / 2)


def test_step_contract_nothing_is_read_back(kind: str, no_host_traffic: type[TorchDispatchMode]) -> None:
    views, images = make(kind), samples(kind, 2)
    with no_host_traffic():
        views(images, 2)
        views.plain(images)


def test_step_contract_values_do_not_decide(kind: str) -> None:
    """On the meta device tensors have no values, so anything that depends on one fails."""
    views, images = make(kind), samples(kind, 2)
    seen = views.to("meta")(images.to("meta"), 2)
    assert seen.device.type == "meta"
    assert seen.shape == make(kind)(images, 2).shape


@pytest.mark.parametrize("kind", ["rgb", "volume", "points"])
def test_step_contract_one_graph(kind: str) -> None:
    views, images = make(kind), samples(kind, 2)
    compiled = torch.compile(views, fullgraph=True, backend="eager")
    torch.manual_seed(0)
    expected = views(images, 2)
    torch.manual_seed(0)
    assert torch.equal(compiled(images, 2), expected)


@pytest.mark.gpu
def test_step_contract_captured_views_are_fresh_at_every_replay(kind: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    views, images = make(kind).cuda(), samples(kind, 2).cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        views(images, 2)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seen = views(images, 2)
    graph.replay()
    one = seen.clone()
    graph.replay()
    assert seen.isfinite().all()
    assert not torch.equal(one, seen)


def test_constants_are_no_state(kind: str) -> None:
    assert not make(kind).state_dict()


def test_description_survives_json(kind: str) -> None:
    described = make(kind).describe()
    assert json.loads(json.dumps(described)) == described


def test_description_names_what_is_applied_and_what_is_not() -> None:
    config = ViewsConfig(image_views=ImageViews(blur=0, hue=0))
    described = make("rgb", config).describe()
    jitter = {"strength": 0.4, "probability": 0.8}
    assert described == {
        "applied": {
            "crop": {"scale": [0.2, 1.0], "ratio": [3 / 4, 4 / 3]},
            "flip": {"probability": 0.5},
            "brightness": jitter,
            "contrast": jitter,
            "saturation": jitter,
            "grayscale": {"probability": 0.2},
            "normalise": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        },
        "left_out": {"vertical_flip": "set to 0", "hue": "set to 0", "blur": "set to 0"},
    }


def test_description_of_volumes() -> None:
    assert make("volume").describe() == {
        "applied": {
            "crop": {"scale": [0.5, 1.0]},
            "flip": {"probability_per_axis": 0.5},
            "rotate": {"probability": 0.5, "planes": [[0, 1], [0, 2], [1, 2]]},
            "shift": {"strength": 0.1},
            "contrast": {"range": [0.8, 1.2]},
            "noise": {"probability": 0.3, "sigma": 0.1},
            "blur": {"probability": 0.3, "kernel": 3},
        },
        "left_out": {},
    }


class Count(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "off"),
    [
        ("rgb", {"crop_scale": (1, 1), "flip": 0.0}),
        ("rgb", {"jitter": 0.0}),
        ("rgb", {"hue": 0.0}),
        ("rgb", {"blur": 0.0}),
        ("volume", {"crop_scale": (1, 1), "flip": 0.0, "rotate": 0.0}),
        ("volume", {"rotate": 0.0}),
        ("volume", {"shift": 0.0, "contrast": (1, 1)}),
        ("volume", {"noise": 0.0}),
        ("volume", {"noise_sigma": 0.0}),
        ("volume", {"blur": 0.0}),
    ],
    ids=str,
)
def test_a_step_that_is_off_is_not_computed(kind: str, off: dict[str, Any]) -> None:
    field = "image_views" if kind == "rgb" else "volume_views"
    changed = dataclasses.replace(getattr(ViewsConfig(), field), **off)
    without = make(kind, dataclasses.replace(ViewsConfig(), **{field: changed}))
    images = samples(kind, 1)
    with Count() as full:
        make(kind)(images, 2)
    with Count() as less:
        without(images, 2)
    assert less.operations < full.operations


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("image_views", "flip", 1.5),
        ("image_views", "flip", math.nan),
        ("image_views", "vertical_flip", -0.1),
        ("image_views", "jitter", 2.0),
        ("image_views", "grayscale", -1.0),
        ("image_views", "blur", 1.01),
        ("image_views", "crop_scale", (1.0, 0.2)),
        ("image_views", "crop_scale", (0.0, 1.0)),
        ("image_views", "crop_scale", (0.5, 1.5)),
        ("image_views", "crop_ratio", (2.0, 1.0)),
        ("image_views", "crop_ratio", (1.0, math.inf)),
        ("image_views", "brightness", -0.4),
        ("image_views", "contrast", math.inf),
        ("image_views", "saturation", -1.0),
        ("image_views", "hue", 0.6),
        ("image_views", "hue", -0.1),
        ("image_views", "blur_kernel", 22),
        ("image_views", "blur_kernel", -1),
        ("image_views", "blur_sigma", (2.0, 0.1)),
        ("image_views", "blur_sigma", (0.0, 1.0)),
        ("volume_views", "crop_scale", (0.5, 1.1)),
        ("volume_views", "flip", 1.1),
        ("volume_views", "rotate", -1.0),
        ("volume_views", "shift", -0.1),
        ("volume_views", "contrast", (1.2, 0.8)),
        ("volume_views", "noise", 3.0),
        ("volume_views", "noise_sigma", -0.1),
        ("volume_views", "blur", -0.3),
        ("point_views", "noise_sigma", -1.0),
    ],
)
def test_bad_settings_are_named_by_their_flag(group: str, field: str, value: object) -> None:
    kinds = {"image_views": ("rgb", ImageViews), "volume_views": ("volume", VolumeViews)}
    kind, settings = kinds.get(group, ("points", PointViews))
    config = dataclasses.replace(ViewsConfig(), **{group: settings(**{field: value})})
    flag = f"--{group}.{field}".replace("_", "-")
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    with pytest.raises(InputError, match=rf"^{group}\.{field} must be ") as raised:
        make(kind, config)
    with command_line():
        assert str(raised.value).startswith(f"{flag} must be ")
        assert str(raised.value).endswith(f"got {shown}")
