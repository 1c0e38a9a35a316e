"""Features of whole datasets: every sample once, in order, with the views of an instance kept together."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from icone.config import PointViews
from icone.data import Dataset, Preparation, load_for_inference
from icone.evaluating import evaluate
from icone.evaluation.features import extract, extract_views
from icone.evaluation.geometry import alignment, rankme, standardize
from icone.inference import load_encoder
from icone.pretraining import pretrain
from icone.runs import Run

SAMPLES = 45  # three batches of evaluation, the last one short


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Points whose views are the points themselves."""
    return pretrain(
        f"synthetic:gaussians@x{SAMPLES}", out=tmp_path_factory.mktemp("runs") / "points", epochs=1, batch_size=9,
        point_views=PointViews(noise_sigma=0.0), device="cpu", console=silent(),
    )  # fmt: skip


def silent() -> Console:
    return Console(file=io.StringIO())


def samples(run: Run) -> Dataset:
    preparation = Preparation.from_json(run.record["data"]["preparation"])
    return load_for_inference(run.config.source, preparation, run.config)


def test_rankme_is_that_of_all_samples_not_of_the_first_batch(run: Run) -> None:
    figures = evaluate(run, device="cpu", console=silent())["trained"]
    with np.load(run.features_file) as saved:
        features = saved["features"]
    assert len(features) == SAMPLES
    assert figures["rankme"] == pytest.approx(rankme(standardize(features)))
    assert figures["rankme"] == pytest.approx(figures["effective_rank"], abs=1e-3)  # both of standardised features
    assert figures["rankme"] != pytest.approx(rankme(standardize(features[:16])), abs=1e-2)


def test_features_come_in_the_order_of_the_samples(run: Run) -> None:
    encoder, dataset = load_encoder(run), samples(run)
    one_by_one = [encoder.encode_prepared(dataset.images_at(torch.tensor([i]))).detach() for i in range(SAMPLES)]
    torch.testing.assert_close(torch.from_numpy(extract(encoder, dataset)), torch.cat(one_by_one))


def test_views_of_an_instance_stay_together(run: Run) -> None:
    """Without noise the views of an instance agree; grouped otherwise, they would not."""
    views = extract_views(load_encoder(run), samples(run), torch.arange(10), num_views=3)
    assert views.shape[:2] == (10, 3)
    assert alignment(views) < 1e-9
    assert alignment(views.swapaxes(0, 1)) > 1e-3
