"""Python objects instead of strings: data, encoder, views, method, labels, callbacks."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import icone
from icone.cli import main
from icone.errors import CollapseError, InputError
from icone.methods import METHODS, IConE, Method, Setting
from icone.nn.losses import nt_xent, weighted_sum
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.terminal import Terminal

IMAGES = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), dtype=np.uint8)
QUICK: dict[str, Any] = {"size": 16, "epochs": 2, "probe_every": 0, "device": "cpu", "cache": "off"}


class Net(nn.Module):
    """A user's network, with a BatchNorm layer and an attribute that means something else than features."""

    num_features = 3

    def __init__(self, features: int = 6) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, features, 3, stride=2), nn.BatchNorm2d(features), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.body(x)
        return pooled.flatten(1)


class Pairs(Dataset[tuple[Tensor, int]]):
    """A map-style Dataset with classes, as torchvision's are."""

    classes: ClassVar[list[str]] = ["cat", "dog"]
    targets: ClassVar[list[int]] = [i % 2 for i in range(12)]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return torch.from_numpy(IMAGES[position]).permute(2, 0, 1).float() / 255, self.targets[position]


def noisy(sample: Tensor) -> Tensor:
    return sample + 0.1 * torch.randn_like(sample)


def quiet() -> Terminal:
    return Terminal(file=io.StringIO())


def pretrain(source: Any, out: Path, **settings: Any) -> Run:
    return icone.pretrain(source, out=out, console=quiet(), **(QUICK | {"encoder": "test_vit"} | settings))


def weights(run: Run) -> dict[str, Tensor]:
    return read_tensors(run.encoder_file)[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("data") / "images"
    folder.mkdir()
    paths = [folder / f"{i:02d}.png" for i in range(12)]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image).save(path)
    return paths


@pytest.fixture(scope="module")
def reference(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The weights of a run on the folder of files."""
    return weights(pretrain(files[0].parent, tmp_path_factory.mktemp("runs") / "files"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: IMAGES,
        lambda: IMAGES.transpose(0, 3, 1, 2),
        lambda: torch.from_numpy(IMAGES).permute(0, 3, 1, 2),
        lambda: list(IMAGES),
        lambda: [Image.fromarray(image) for image in IMAGES],
        lambda: [{"image": image} for image in IMAGES],
    ],
    ids=["channels last", "channels first", "tensor", "list of arrays", "PIL images", "dictionaries"],
)
def test_all_forms_of_the_same_images_train_the_same_encoder(
    make: Callable[[], Any], reference: dict[str, Tensor], tmp_path: Path
) -> None:
    """Folders order their samples by name, as these arrays do: the run on the files is the reference."""
    run = pretrain(make(), tmp_path / "run")
    assert run.config.source.startswith("object:")
    assert all(torch.equal(found, reference[name]) for name, found in weights(run).items())


def test_a_list_of_paths_a_table_and_a_csv_name_files(
    files: list[Path], reference: dict[str, Tensor], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"path": files})
    csv = files[0].parent.parent / "images.csv"
    pd.DataFrame({"path": [f"images/{path.name}" for path in files]}).to_csv(csv, index=False)
    for name, source in {"list": files, "texts": list(map(str, files)), "frame": frame, "csv": csv}.items():
        found = weights(pretrain(source, tmp_path / name))
        assert all(torch.equal(found[key], value) for key, value in reference.items()), name
    run = Run(tmp_path / "csv")
    assert run.instances["ids"][0] == "images/00.png"
    assert len(icone.embed(run, console=quiet())) == 12  # a CSV can be opened again


def test_a_table_brings_labels_groups_and_splits(files: list[Path], tmp_path: Path) -> None:
    frame = pd.DataFrame({"path": files, "label": ["a", "b"] * 6, "split": ["train"] * 8 + ["val"] * 2 + ["test"] * 2})
    run = pretrain(frame, tmp_path / "split")
    assert len(run.instances["ids"]) == 8
    assert run.instances["test_ids"] == [str(path) for path in files[10:]]
    assert run.instances["class_names"] == ["a", "b"]
    with pytest.raises(InputError, match=r"leave test_fraction= out"):
        pretrain(frame, tmp_path / "both", test_fraction=0.2)
    groups = [f"patient {i // 3}" for i in range(12)]
    grouped = pretrain(frame.drop(columns="split").assign(group=groups), tmp_path / "groups", test_fraction=0.3)
    group_of = dict(zip(map(str, files), groups, strict=True))
    sides = [{group_of[name] for name in grouped.instances[part]} for part in ("ids", "test_ids")]
    assert all(sides)
    assert not sides[0] & sides[1]
    for bad, words in [
        (frame.rename(columns={"path": "p"}), "needs a column named path"),
        (frame.assign(split="holdout"), "has the split 'holdout'"),
        (frame.assign(path=[*map(str, files[:-1]), ""]), "row 12 .* has no path"),
        (frame.assign(path=str(files[0])), "twice"),
    ]:
        with pytest.raises(InputError, match=words):
            pretrain(bad, tmp_path / "bad")


def test_a_dataset_brings_its_labels(tmp_path: Path) -> None:
    run = pretrain(Pairs(), tmp_path / "run")
    assert run.instances["class_names"] == ["cat", "dog"]
    assert run.instances["labels"] == Pairs.targets
    plain = pretrain(TensorDataset(torch.rand(6, 1, 16, 16)), tmp_path / "plain")
    assert plain.preparation.channels == 1
    assert plain.instances["class_names"] == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.zeros(5), "is no data set"),
        (np.zeros((0, 8, 8)), "is no data set"),
        (np.array([1j, 2j]), "is no data set"),
        (np.array(["a.png", "b.png"]), "there is no file a.png"),
        ([], "is empty"),
        ({"a": 1}, "a dict is no data set"),
        (7, "^source must be"),
        (["missing.png"], "there is no file missing.png"),
        ([object()], "of type object"),
        ([{"picture": 1}], "name the sample 'image'"),
    ],
)
def test_what_is_no_data_is_refused(source: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        pretrain(source, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_axes_decide_what_an_array_is(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((6, 5, 16, 16), dtype=np.float32)
    images = pretrain(array, tmp_path / "images", axes="CYX")
    assert (images.preparation.spatial_dims, images.preparation.channels) == (2, 5)
    np.save(tmp_path / "array.npy", array)
    from_file = pretrain(tmp_path / "array.npy", tmp_path / "file", axes="CYX")
    assert all(torch.equal(found, weights(images)[name]) for name, found in weights(from_file).items())
    volumes = icone.data.open_source(array, icone.config.DataConfig())
    assert volumes.spatial_dims == 3
    for axes, words in [("CY", "name every axis"), ("CZYX", "names 4 axes"), ("QYX", "name every axis")]:
        with pytest.raises(InputError, match=words):
            pretrain(array, tmp_path / "bad", axes=axes)


def test_any_network_is_an_encoder_and_is_left_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = Net()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modules = [type(module) for module in network.modules()]
    run = pretrain(IMAGES, tmp_path / "run", encoder=network)
    assert [type(module) for module in network.modules()] == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert run.record["encoder"]["num_features"] == 6
    initial = read_tensors(run.initial_file)[0]
    assert all(torch.equal(initial[name], before[name]) for name in before), "training starts from the given weights"
    trained = weights(run)
    assert not torch.equal(trained["body.0.weight"], before["body.0.weight"])
    Net().load_state_dict(trained)  # under the names of the user's own network
    with pytest.raises(InputError, match=r"given its encoder as a Python object \(.*Net\).*give it again"):
        icone.load_encoder(Run(run.folder))
    with pytest.raises(InputError, match=r"icone\.embed\(run, x, encoder=…\)"):
        icone.embed(Run(run.folder), IMAGES)
    encoder = icone.load_encoder(run.folder, encoder=Net())
    features = encoder(IMAGES.transpose(0, 3, 1, 2))
    table = icone.embed(run, IMAGES, encoder=Net(), console=quiet())
    np.testing.assert_allclose(features.numpy(), table.filter(regex=r"^f\d+$").to_numpy(), atol=1e-6)
    again = icone.embed(run, console=quiet())  # this process remembers network and data
    assert again[table.columns].equals(table)
    result = icone.evaluate(run, data=IMAGES, encoder=Net(), labels=["a", "b"] * 6, console=quiet())
    assert {"trained", "untrained"} <= result.keys()
    with pytest.raises(InputError, match="does not fit"):
        icone.load_encoder(run, encoder=Net(features=7))
    named = pretrain(IMAGES, tmp_path / "named")
    with pytest.raises(InputError, match="builds it by itself"):
        icone.load_encoder(named, encoder=Net())


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (nn.Conv2d(3, 4, 3), r"returns \(2, 4, 14, 14\).*AdaptiveAvgPool2d"),
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 4)), r"cannot take samples of shape \(3, 16, 16\)"),
        (7, "encoder must be a name or an nn.Module"),
    ],
)
def test_networks_that_give_no_features_are_refused(encoder: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        pretrain(IMAGES, tmp_path / "run", encoder=encoder)


def test_views_of_your_own(tmp_path: Path) -> None:
    calls: list[tuple[int, ...]] = []

    def view(sample: Tensor) -> Tensor:
        assert sample.dtype == torch.float32
        assert 0 <= float(sample.min()) <= float(sample.max()) <= 1
        calls.append(tuple(sample.shape))
        return noisy(sample)

    run = pretrain(IMAGES, tmp_path / "run", views=view, num_views=3)
    assert run.config.views == 3
    assert set(calls) == {(3, 16, 16)}
    # tried once, two views compared, the range of one looked at, then every view of both epochs
    assert len(calls) == 1 + 2 + 1 + 2 * 12 * 3
    assert run.record["views"]["applied"] == {"custom": {"callable": "view"}}
    assert len(icone.embed(run, IMAGES, console=quiet())) == 12  # the deterministic view needs no callable
    with pytest.raises(InputError, match="given its views as a Python object"):
        icone.evaluate(Run(run.folder), data=IMAGES, console=quiet())
    icone.evaluate(run.folder, data=IMAGES, views=view, console=quiet())
    assert icone.evaluate(run, console=quiet())["data"]["samples"] == 12  # this process remembers data and views


def test_a_plain_function_of_the_views_is_what_the_encoder_sees(tmp_path: Path) -> None:
    class Normalised:
        def __call__(self, sample: Tensor) -> Tensor:
            return noisy(self.plain(sample))

        def plain(self, sample: Tensor) -> Tensor:
            return (sample - 0.5) / 0.25

    run = pretrain(IMAGES, tmp_path / "run", views=Normalised(), encoder=Net())
    with pytest.raises(InputError, match="given its views"):
        icone.load_encoder(Run(run.folder), encoder=Net())
    encoder = icone.load_encoder(run.folder, encoder=Net(), views=Normalised())
    raw = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())
    expected = encoder.encoder((raw.float() / 255 - 0.5) / 0.25)
    torch.testing.assert_close(encoder(raw), expected)
    torch.testing.assert_close(icone.load_encoder(run)(raw), encoder(raw))


@pytest.mark.parametrize(
    ("views", "words"),
    [
        (lambda x: x[:1], r"returned \(1, 16, 16\)"),
        (lambda x: None, "returned NoneType"),
        (lambda x: 1 / 0, "failed"),
        (lambda x: x / 0, "returned values that are NaN or infinite"),
    ],
)
def test_views_that_do_not_fit_are_refused(views: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        pretrain(IMAGES, tmp_path / "run", views=views)


def test_methods_as_classes_and_instances(tmp_path: Path) -> None:
    class Plain(Method):
        """SimCLR without a head."""

        name: ClassVar[str] = "plain_contrast"
        title: ClassVar[str] = "Plain contrast"
        prevents_collapse: ClassVar[str] = "negatives from the batch"
        min_batch_size: ClassVar[int] = 2
        too_small: ClassVar[str] = "there is nothing to contrast"

        def __init__(self, encoder: nn.Module, setting: Setting, *, temperature: float = 0.5) -> None:
            super().__init__(encoder, setting)
            self.temperature = temperature

        def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
            return weighted_sum(contrast=nt_xent(self.encode(views), self.temperature))

    try:
        run = pretrain(IMAGES, tmp_path / "class", method=Plain, options={"temperature": 0.2}, batch_size=4)
        assert run.config.method == "plain_contrast"
        assert run.record["method"]["options"] == {"temperature": 0.2}
        assert "contrast" in run.history[0]
        with pytest.raises(InputError, match="needs a batch size of 2"):
            pretrain(IMAGES, tmp_path / "small", method=Plain, batch_size=1)
    finally:
        METHODS.pop("plain_contrast", None)
    torch.manual_seed(0)
    network = Net()
    network.num_features = 6  # who builds a method says it
    built = IConE(network, Setting(num_instances=12, batch_size=2), out=4, hidden=8)
    before = {name: tensor.clone() for name, tensor in built.state_dict().items()}
    run = pretrain(IMAGES, tmp_path / "instance", encoder="auto", method=built, batch_size=2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in built.state_dict().items())
    assert icone.load_encoder(run).num_features == 6
    wrong = IConE(network, Setting(num_instances=5, batch_size=2), out=4, hidden=8)
    with pytest.raises(InputError, match=r"num_instances=5\), but this run has 12"):
        pretrain(IMAGES, tmp_path / "wrong", encoder="auto", method=wrong, batch_size=2)
    with pytest.raises(InputError, match="leave the two out"):
        pretrain(IMAGES, tmp_path / "wrong", encoder=Net(), method=built)
    with pytest.raises(InputError, match="method must be a name, a class or an instance"):
        pretrain(IMAGES, tmp_path / "wrong", method=Net)


def test_options_as_a_dictionary_are_those_of_the_command_line(tmp_path: Path) -> None:
    options = {"view_weight": 0.5, "decay_anchors": False, "diversity": "sigreg", "out": 8, "hidden": 16}
    run = pretrain(IMAGES, tmp_path / "a", options=options)
    texts = ["view_weight=0.5", "decay_anchors=false", "diversity=sigreg", "out=8", "hidden=16"]
    same = pretrain(IMAGES, tmp_path / "b", options=texts)
    assert run.record["method"] == same.record["method"]
    with pytest.raises(InputError, match="unknown option of icone"):
        pretrain(IMAGES, tmp_path / "c", options={"nosuch": 1})


@pytest.mark.parametrize(
    "labels",
    [["x", "y"] * 6, np.array(["x", "y"] * 6), pd.Series(["x", "y"] * 6), {f"{i:06d}": "xy"[i % 2] for i in range(12)}],
    ids=["list", "array", "series", "mapping"],
)
def test_labels_as_objects(labels: Any, tmp_path: Path) -> None:
    run = pretrain(IMAGES, tmp_path / "run", labels=labels, method="cross_entropy", batch_size=4)
    assert run.instances["class_names"] == ["x", "y"]
    assert run.instances["labels"] == [0, 1] * 6


def test_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="5 labels for 12 samples"):
        pretrain(IMAGES, tmp_path / "run", labels=["a"] * 5)
    with pytest.raises(InputError, match="such as nobody"):
        pretrain(IMAGES, tmp_path / "run", labels={"nobody": "a"})


def test_callbacks_see_every_epoch_and_may_stop_a_run(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    class Stop(icone.Callback):
        def measure(self, epoch: int) -> dict[str, Any]:
            return {"own": epoch * 10}

        def end_epoch(self, row: dict[str, Any]) -> None:
            if row["epoch"] == 1:
                raise CollapseError("enough")

    with pytest.raises(CollapseError, match="enough"):
        pretrain(IMAGES, tmp_path / "run", epochs=4, callbacks=[rows.append, Stop()])
    assert [row["own"] for row in rows] == [0, 10]
    with pytest.raises(InputError, match="callbacks are"):
        pretrain(IMAGES, tmp_path / "other", callbacks=[7])


def test_a_run_of_objects_resumes_bit_for_bit_when_they_are_given_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Net()
    settings: dict[str, Any] = {"encoder": network, "views": noisy, "epochs": 3}
    whole = weights(pretrain(IMAGES, tmp_path / "whole", **settings))

    class Stop(icone.Callback):
        def end_epoch(self, row: dict[str, Any]) -> None:
            raise CollapseError("stopped")

    with pytest.raises(CollapseError):
        pretrain(IMAGES, tmp_path / "run", callbacks=[Stop()], **settings)
    missing: dict[str, Any]
    for missing in ({"encoder": "test_vit"}, {"views": 2}):
        with pytest.raises(InputError, match="trained with another configuration"):
            pretrain(IMAGES, tmp_path / "run", resume=True, **(settings | missing))
    changed = IMAGES.copy()
    changed[3] += 1
    with pytest.raises(InputError, match="data has changed"):
        pretrain(changed, tmp_path / "run", resume=True, **settings)
    resumed = weights(pretrain(IMAGES, tmp_path / "run", resume=True, **settings))
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())


def test_the_command_line_says_what_only_python_can_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(pretrain(IMAGES, tmp_path / "run").folder)  # nobody remembers the objects, as in another process
    assert main(["evaluate", str(run.folder)]) == 2
    assert "trained on a Python object (array of shape (12, 16, 16, 3))" in capsys.readouterr().err
    np.save(tmp_path / "moved.npy", IMAGES)
    assert main(["evaluate", str(run.folder), "--data", str(tmp_path / "moved.npy"), "--cache", "off"]) == 0
    page = tmp_path / "page.html"
    moved = ["--data", str(tmp_path / "moved.npy"), "--projections", "pca"]
    assert main(["report", str(run.folder), "--out", str(page), *moved]) == 0
    assert page.stat().st_size > 100_000
    assert json.loads((run.folder / "result.json").read_text())["data"]["samples"] == 12


def test_the_default_folder_of_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second array is told which folder is free. A page finds the data while the run is in use, else asks for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "array-2").mkdir(parents=True)
    run = icone.pretrain(IMAGES, console=quiet(), **QUICK, encoder="test_vit")
    assert run.folder == Path("runs/array")
    with pytest.raises(InputError, match=r"runs/array already holds .* resume=True.*out=.runs/array-3"):
        icone.pretrain(IMAGES[::-1].copy(), console=quiet(), **QUICK, encoder="test_vit")
    settings: dict[str, Any] = {"out": "page.html", "projections": ("pca",), "console": quiet()}
    assert icone.report(run, **settings).stat().st_size > 1_000_000  # one run needs no list
    assert icone.report(str(run.folder), **settings).stat().st_size > 1_000_000
    assert icone.report([run], data=IMAGES, **settings).stat().st_size > 1_000_000
    folder = run.folder
    del run
    with pytest.raises(InputError, match=r"no pictures of the samples: .*icone.report\(run, data=data\).*thumbnails"):
        icone.report(str(folder), **settings)
    (folder / "result.json").unlink()
    with pytest.raises(InputError, match=r"trained on a Python object .*icone.report\(run, data=data\)"):
        icone.report(folder, **settings)


def test_other_data_given_to_evaluate_is_said(tmp_path: Path) -> None:
    run = pretrain(IMAGES, tmp_path / "run")
    said = io.StringIO()
    icone.evaluate(run, data=IMAGES, untrained=False, geometry_instances=0, console=Terminal(file=said))
    assert "another content" not in said.getvalue()
    changed = IMAGES.copy()
    changed[3] += 1
    icone.evaluate(run, data=changed, untrained=False, geometry_instances=0, console=Terminal(file=said, width=400))
    assert "1 sample has another content than when the run was trained, such as 000003" in said.getvalue()


def test_a_series_is_aligned_by_its_index(tmp_path: Path) -> None:
    labels = pd.Series(["x", "y"] * 6)
    run = pretrain(IMAGES, tmp_path / "run", labels=labels.sample(frac=1, random_state=1))
    assert run.instances["labels"] == [0, 1] * 6
    with pytest.raises(InputError, match="neither ids of samples nor their numbers 0 to 11"):
        pretrain(IMAGES, tmp_path / "other", labels=labels.set_axis(range(5, 17)))


def test_data_without_the_samples_of_a_run_is_refused(files: list[Path], tmp_path: Path) -> None:
    frame = pd.DataFrame({"path": files, "split": ["train"] * 10 + ["test"] * 2})
    run = pretrain(frame, tmp_path / "run")
    with pytest.raises(InputError, match=r"holds none of the 12 samples of .*data="):
        icone.evaluate(run, data=files[0].parent, console=quiet())


def test_what_is_guessed_or_left_out_is_said() -> None:
    config = icone.config.DataConfig()
    channels = icone.data.open_source(np.zeros((3, 5, 16, 16)), config)
    assert "5 slices; if these are channels of an image, give --axes=CYX" in channels.notes[0]
    assert not icone.data.open_source(np.zeros((3, 64, 16, 16)), config).notes
    for edge in (32, 64):
        (last,) = icone.data.open_source(np.zeros((3, edge, edge, 8)), config).notes
        assert last.endswith("if the 8 along the last axis are channels of an image, give --axes=YXC")
    assert not icone.data.open_source(IMAGES, config).notes
    pairs = icone.data.open_source(TensorDataset(torch.rand(4, 1, 16, 16), torch.arange(4)), config)
    assert "give labels=" in pairs.notes[0]
    assert not icone.data.open_source(Pairs(), config).notes


def test_an_array_of_points_that_may_be_one_image_is_noted(tmp_path: Path) -> None:
    config, file = icone.config.DataConfig(), tmp_path / "a.npy"
    image = np.random.default_rng(0).random((40, 40))
    understood = "the first axis counts the samples: 40 points of 40 numbers each. Were it one image, give "
    source = icone.data.open_source(image, config)
    assert (source.spatial_dims, source.notes) == (0, (understood + "a list of such arrays",))
    assert icone.data.open_source([image, image], config).spatial_dims == 2
    np.save(file, image)
    source = icone.data.open_source(file, config)
    assert source.notes == (understood + "the folder of such files, or cut it with --tiles",)
    assert icone.data.open_source(tmp_path, config).spatial_dims == 2
    assert not icone.data.open_source(np.zeros((200, 40)), config).notes
    np.savez(tmp_path / "b.npz", images=image, labels=np.arange(40) % 2)
    assert not icone.data.open_source(tmp_path / "b.npz", config).notes
