"""Every table and figure of the paper by name, and ours. Adding one: an `Experiment` and its line here."""

from __future__ import annotations

from collections.abc import Sequence

from icone.errors import InputError, unknown_name
from icone.paper.experiments import ablations, stability
from icone.paper.experiments.base import Experiment
from icone.paper.experiments.hyperparameters import HYPERPARAMETERS
from icone.paper.experiments.imbalance import IMBALANCE
from icone.paper.experiments.memory_cost import MEMORY
from icone.paper.experiments.natural import NATURAL_IMAGES
from icone.paper.experiments.supervised import SUPERVISED
from icone.paper.experiments.synthetic_study import SYNTHETIC

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        stability.BATCH_SIZE_2D,
        stability.BATCH_SIZE_3D,
        stability.KNN_3D,
        stability.BATCH_SENSITIVITY,
        stability.UMAP,
        stability.GEOMETRY,
        IMBALANCE,
        SUPERVISED,
        ablations.REGULARISER,
        ablations.COLLAPSE,
        HYPERPARAMETERS,
        stability.PER_DATASET_2D,
        stability.PER_DATASET_3D,
        ablations.DATASET_SIZE,
        ablations.VIEWS,
        ablations.INIT_SCALE,
        MEMORY,
        stability.METRICS_2D,
        stability.METRICS_3D,
        NATURAL_IMAGES,
        SYNTHETIC,
    )
}
"""In the order of the paper."""
BUILT_IN = frozenset(EXPERIMENTS)
"""Those that the command line knows; others are registered by programs."""
NOT_A_RESULT = {"fig:IConE_vs_others": "a drawing of the idea", "alg:icone": "src/icone/methods/icone.py"}
"""What else the paper labels: nothing that runs could give."""


def register_experiment(experiment: Experiment) -> Experiment:
    """Add an experiment of your own: `icone paper list`, `run` and `show` know it from then on, in this process."""
    if experiment.name in EXPERIMENTS or experiment.name == "all":
        raise InputError(f"there is an experiment {experiment.name} already: give yours another name")
    EXPERIMENTS[experiment.name] = experiment
    return experiment


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, in the order of the paper; `all` for every one."""
    for name in names:
        if name not in EXPERIMENTS and name != "all":
            raise unknown_name("experiment", name, [*EXPERIMENTS, "all"])
    return [experiment for experiment in EXPERIMENTS.values() if "all" in names or experiment.name in names]
