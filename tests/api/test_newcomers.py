"""What newcomers give in Python: it is taken where its meaning is plain, else a sentence says the way out."""

from __future__ import annotations

import dataclasses
import io
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

import icone
from icone.cli import main
from icone.config import DataConfig, ImageViews, PointViews, VolumeViews
from icone.data import Source, open_source
from icone.errors import InputError
from icone.run import Run
from icone.terminal import Terminal
from icone.views import CropViews, CustomViews, PointPipeline, VolumePipeline

IMAGES = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), dtype=np.uint8)
QUICK: dict[str, Any] = {"size": 16, "encoder": "test_vit", "epochs": 1, "probe_every": 0, "device": "cpu"}


class Pairs(Dataset[tuple[Tensor, int]]):
    """A Dataset that returns (image, label), with an attribute of the name of labels that holds none."""

    labels = None

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return torch.from_numpy(IMAGES[position]).permute(2, 0, 1), position % 2


class Broken(Pairs):
    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        raise KeyError("image")


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.from_numpy(IMAGES))


def quiet() -> Terminal:
    return Terminal(file=io.StringIO())


def opened(data: Any, labels: Any = None, **settings: Any) -> Source:
    return open_source(data, DataConfig(**settings), labels)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    paths = [folder / "ab"[i % 2] / f"{i}.png" for i in range(len(IMAGES))]
    for path, image in zip(paths, IMAGES, strict=True):
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def run(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return icone.pretrain(files, labels=list("abababab"), out=out, console=quiet(), **QUICK)


@pytest.mark.parametrize(
    "make",
    [tuple, np.array, pd.Series, lambda paths: np.array(list(map(Path, paths)), dtype=object)],
    ids=["tuple", "array of texts", "Series", "array of paths"],
)
def test_paths_in_any_sequence_are_files_in_that_order(make: Callable[[list[str]], Any], files: list[str]) -> None:
    backwards = files[::-1]
    assert list(opened(make(backwards)).ids) == backwards
    assert icone.inspect(make(backwards), encoder="test_vit", size=16)["samples"] == len(files)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.Series(list(IMAGES), index=range(5, 13)),
        lambda: np.array([IMAGES[0], IMAGES[1][:9]], dtype=object),
        lambda: torch.from_numpy(IMAGES).bfloat16(),
        Pairs,
    ],
    ids=["Series of arrays", "arrays of different sizes", "bfloat16", "pairs"],
)
def test_images_in_any_sequence(make: Callable[[], Any]) -> None:
    source = opened(make())
    np.testing.assert_allclose(source.read(0).array, IMAGES[0].transpose(2, 0, 1), atol=1)
    assert source.labels is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (image for image in IMAGES), r"^source of type generator has no length: give a list, list\(source\)$"),
        (lambda: Path().glob("*.png"), "has no length: give a list"),
        (Stream, "source of type Stream has no length: give a list"),
        (lambda: Image.fromarray(IMAGES[0]), "one image is no data set: give a list of images"),
        (lambda: DataLoader(Pairs()), "DataLoader is no data set; give its data set, loader.dataset"),
        (Broken, "cannot use sample 0 of Broken of 8 samples: KeyError: 'image'"),
        (lambda: ["a.png", None], "entry 1 of the list is of type NoneType, and others are paths: give paths alone"),
        (lambda: [("a.png", 0)], "of type str; .* files are given as a list of their paths alone"),
        (lambda: "scans/*.png", r'a pattern is no path: give the folder, and with it include=\["\*\.png"\]'),
        (lambda: pd.DataFrame({"path": [1, 2]}), "row 1 of the table of 2 rows has no path .* of type int"),
        (lambda: pd.DataFrame({"path": []}), "the table of 0 rows has no rows"),
        (lambda: pd.DataFrame({"image": list(IMAGES)}), r'of type ndarray; .* as a list, list\(table\["image"\]\)'),
        (lambda: pd.DataFrame({"path": ["x.png"]}), "no file x.png.*relative paths begin at the current folder"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(make: Callable[[], Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        icone.pretrain(make(), out=tmp_path / "run", console=quiet(), **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_path_that_is_given_twice_is_named(files: list[str]) -> None:
    with pytest.raises(InputError, match=f"names {files[0]} twice"):
        opened([*files, files[0]])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (3, "^labels must be a path, .* got 3$"),
        ((i for i in range(8)), "labels of type generator has no length: give a list"),
        ({*"abcdefgh"}, "labels must be a sequence with one per sample, .* got the type set"),
        ([[0], [1]] * 4, "cannot use the labels: entry 0 is of type list, and a label is one text or number"),
        (np.zeros((8, 2, 2)), "cannot use the labels: entry 0 is of type list"),
    ],
)
@pytest.mark.parametrize("verb", ["pretrain", "embed", "evaluate", "finetune", "inspect", "plan"])
def test_labels_that_are_none_are_refused(verb: str, labels: Any, words: str, run: Run, tmp_path: Path) -> None:
    calls: dict[str, Callable[..., Any]] = {
        "pretrain": partial(icone.pretrain, IMAGES, out=tmp_path / "run", **QUICK),
        "plan": partial(icone.plan, IMAGES, **QUICK),
        "inspect": partial(icone.inspect, IMAGES, encoder="test_vit", size=16),
    }
    call = calls.get(verb, partial(getattr(icone, verb), run, device="cpu"))
    with pytest.raises(InputError, match=words):
        call(labels=labels, console=quiet())


def test_groups_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="groups must be a sequence with one per sample"):
        icone.pretrain(IMAGES, groups=3, out=tmp_path / "run", console=quiet(), **QUICK)


def test_labels_may_be_bytes_and_may_all_be_empty() -> None:
    assert opened(IMAGES, [b"a", b"b"] * 4).labels == ("a", "b") * 4
    assert "all labels are empty" in " ".join(opened(IMAGES, [None] * 8).label_notes)


@pytest.mark.parametrize(
    ("shape", "what"),
    [((32, 40, 3), "32 images of 40 × 3"), ((3, 40, 32), "3 images of 40 × 32"), ((40, 40), "40 points of 40")],
)
def test_an_array_that_may_be_one_image_is_said(shape: tuple[int, ...], what: str, tmp_path: Path) -> None:
    array = np.random.default_rng(0).random(shape)
    np.save(tmp_path / "array.npy", array)
    for data in (array, tmp_path / "array.npy"):
        (note,) = opened(data).notes
        assert f"the first axis counts the samples: {what}" in note
        assert "Were it one image" in note


def test_the_axes_of_every_array_can_be_said(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((4, 32, 24, 6), dtype=np.float32)  # six channels, last
    np.savez(tmp_path / "array.npz", images=array)
    for data in (array, list(array), torch.utils.data.TensorDataset(torch.from_numpy(array)), tmp_path / "array.npz"):
        guessed = opened(data)
        assert guessed.spatial_dims == 3
        assert "(32, 24, 6)" in guessed.notes[0]
        assert "give --axes=YXC" in guessed.notes[0]
        said = opened(data, axes="YXC")
        assert said.spatial_dims == 2
        np.testing.assert_array_equal(said.read(1).array, array[1].transpose(2, 0, 1))
    with pytest.raises(InputError, match=r"test_vit is an encoder for images, and .*; if .*channels, axes=\"CYX\""):
        icone.inspect(array, encoder="test_vit", size=16)
    with pytest.raises(InputError, match="a PIL image says its axes itself"):
        opened([Image.fromarray(IMAGES[0])] * 2, axes="YXC")


def test_a_loaded_encoder_says_what_it_takes(run: Run) -> None:
    encoder = icone.load_encoder(run)
    told = r"3 channels along axis 1, \(B, 3, H, W\), got the shape \(8, 16, 16, 3\).*moveaxis.*movedim"
    for given in (IMAGES, torch.from_numpy(IMAGES)):
        with pytest.raises(InputError, match=told):
            encoder(given)
    torch.testing.assert_close(encoder(np.moveaxis(IMAGES, -1, 1)), encoder(torch.from_numpy(IMAGES).movedim(-1, 1)))
    with pytest.raises(InputError, match=r"got the shape \(3, 16, 16\); one sample becomes such a batch by sample\["):
        encoder(IMAGES[0].transpose(2, 0, 1))
    with pytest.raises(InputError, match=r"got the type str: icone\.embed and icone\.predict take paths"):
        encoder("scan.png")


def test_a_single_sample_is_embedded_and_predicted_in_the_same_ways(
    run: Run, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = icone.finetune(run, epochs=1, scratch=False, out=tmp_path / "tuned", device="cpu", console=quiet())
    verbs: list[Callable[[Any], pd.DataFrame]] = [
        lambda data: icone.embed(run, data, device="cpu", console=quiet()).filter(regex=r"^f\d"),
        lambda data: icone.predict(tuned, data, console=quiet()).filter(regex="^p_"),
    ]
    for verb in verbs:
        expected = verb(files).iloc[[1]].to_numpy()
        for one in (files[1], Path(files[1]), Image.fromarray(IMAGES[1]), [IMAGES[1]], IMAGES[1:2]):
            np.testing.assert_allclose(verb(one).to_numpy(), expected, atol=1e-5)
        with pytest.raises(InputError, match=r"counts the samples, and one sample alone is given in a list, \[x\]"):
            verb(IMAGES[1])
        with pytest.raises(InputError, match=r"there is no .*missing\.png"):
            verb("missing.png")
    for command in (["predict", str(tmp_path / "tuned")], ["embed", str(run.folder)]):
        assert main([*command, files[1], "--device", "cpu"]) == 0
        assert "wrote 1 " in capsys.readouterr().out
    predictions = pd.read_csv(tmp_path / "tuned" / "predictions-1.csv")
    assert (predictions["path"].tolist(), predictions["id"].tolist()) == ([files[1]], ["1.png"])
    assert main(["pretrain", files[1]]) == 2
    assert "is one file" in capsys.readouterr().err


def test_the_id_of_one_file_is_its_name_however_it_is_typed(
    run: Run, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the path as typed: the same file had as many ids as there are ways to write it."""
    folder = Path(files[1]).parent
    monkeypatch.chdir(folder)
    in_folder = icone.embed(run, folder, device="cpu", console=quiet()).set_index("id")
    for typed in ("1.png", "./1.png", f"../{folder.name}/1.png", files[1], Path(files[1])):
        table = icone.embed(run, typed, labels={"1.png": "b"}, device="cpu", console=quiet())
        assert (table["id"].tolist(), table["label"].tolist()) == (["1.png"], ["b"])
        np.testing.assert_allclose(table["f0"], in_folder.loc[["1.png"], "f0"], atol=1e-5)
    listed = icone.embed(run, ["./1.png", files[3]], device="cpu", console=quiet())
    assert listed["id"].tolist() == ["./1.png", files[3]]  # of a list they are as written


def flipped(sample: Tensor) -> Tensor:
    return sample.flip(-1) if torch.rand(()) < 0.5 else sample


def shifted(sample: Tensor) -> Tensor:
    return sample + float(np.random.rand())


def brighter(sample: Tensor) -> Tensor:
    return sample * random.uniform(0.5, 1.5)


OFF = ImageViews(crop_scale=(1, 1), flip=0, vertical_flip=0, jitter=0, grayscale=0, blur=0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"views": lambda sample: (sample - 0.5) / 0.25}, "views=<lambda> returns the same view of a sample"),
        ({"views": lambda sample: sample.mul_(2)}, "views=<lambda> returns the same view of a sample"),
        ({"image_views": OFF}, "every random step of the views is switched off.* image_views=ImageViews\\(flip=0.5\\)"),
        ({"views": flipped}, None),
        ({"views": shifted}, None),
        ({"views": brighter}, None),
        ({"image_views": dataclasses.replace(OFF, blur=0.1)}, None),
        ({"image_views": OFF, "method": "mae"}, None),
        ({"image_views": OFF, "method": "cross_entropy", "labels": list("abababab"), "batch_size": 4}, None),
        ({}, None),
    ],
)
def test_views_that_are_all_the_same_are_said_before_training(
    settings: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    told = io.StringIO()
    run = icone.pretrain(
        IMAGES, out=tmp_path / "run", console=Terminal(file=told, width=400), **{**QUICK, "size": 32, **settings}
    )
    before, _, _ = told.getvalue().partition("training:")
    found = re.search(r"note: all views of a sample are the same.*", before)
    assert (found is not None) == (said is not None)
    assert said is None or (found is not None and re.search(said, found[0]))
    assert any("all views" in note for note in run.record["data"]["notes"]) == (said is not None)


@pytest.mark.parametrize("view", [flipped, shifted, brighter])
def test_looking_at_views_leaves_all_random_numbers_as_they_are(
    view: Callable[[Tensor], Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(name: str) -> list[float]:
        random.seed(0)
        np.random.seed(0)
        run = icone.pretrain(IMAGES, views=view, out=tmp_path / name, console=quiet(), **QUICK)
        return [row["loss"] for row in run.history]

    looked = losses("looked")
    monkeypatch.setattr(CustomViews, "why_identical", None)
    assert losses("not") == looked


class Normalised:
    """Flips at random and normalises, as the transforms of many training scripts do."""

    def __call__(self, sample: Tensor) -> Tensor:
        return (flipped(sample) - 0.5) / 0.2


class NormalisedEverywhere(Normalised):
    def plain(self, sample: Tensor) -> Tensor:
        return (sample - 0.5) / 0.2


@pytest.mark.parametrize(
    ("views", "is_said"), [(Normalised(), True), (NormalisedEverywhere(), False), (flipped, False), (brighter, False)]
)
def test_views_that_normalise_say_that_embeddings_do_not(views: Any, is_said: bool, tmp_path: Path) -> None:
    run = icone.pretrain(IMAGES, views=views, out=tmp_path / "run", console=quiet(), **QUICK)
    found = [note for note in run.record["data"]["notes"] if "an attribute plain" in note]
    assert len(found) == is_said
    assert not is_said or re.match(r"views=Normalised returns values from -2\.\d to 2\.\d, but embeddings", found[0])


def test_views_of_volumes_points_and_crops_that_are_all_the_same() -> None:
    off = VolumeViews(
        crop_scale=(1, 1), flip=0, rotate=0, shift=0, contrast=(1, 1), noise=0, noise_sigma=0, blur=0
    )  # fmt: skip
    volumes = VolumePipeline(off, channels=1, size=(8, 8, 8))
    assert "--volume-views.flip=0.5" in (volumes.why_identical or "")
    assert CropViews(volumes, 0.3).why_identical is None
    assert "--point-views.noise-sigma=0.1" in (PointPipeline(PointViews(noise_sigma=0)).why_identical or "")
    assert PointPipeline(PointViews()).why_identical is None


def test_a_view_that_fails_is_named_once() -> None:
    def broken(sample: Tensor) -> Tensor:
        raise KeyError("mask")

    with pytest.raises(InputError, match=r"^views=broken failed: KeyError: 'mask'\. Give a function"):
        CustomViews(broken, (1, 8, 8))


def test_masked_values_are_refused() -> None:
    masked = np.ma.masked_equal(IMAGES, IMAGES[0, 0, 0, 0])
    for data in (masked, list(masked)):
        with pytest.raises(InputError, match=r"array\.filled\(value\)"):
            opened(data)
    assert len(opened(np.ma.masked_array(IMAGES))) == len(IMAGES)  # a mask of nothing
