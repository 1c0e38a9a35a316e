"""Whether `--batch-size`, `--micro-batch`, `--accumulate` and the encoder fit together."""

from __future__ import annotations

from icone.config import PretrainConfig
from icone.encoders.registry import NF, RESNETS_3D, encoder_name
from icone.errors import InputError
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.nn.ranks import Ranks
from icone.terminal import counted, either

AUTO_BATCH = REFERENCE_SAMPLES
"""What `--batch-size auto` takes: 16 samples, for which the recipe is made. There its AdamW is the paper's, and
BatchNorm needs no averages over earlier batches. From 16 to 1 blood cells lost 10 points of probe in short runs, a
sample takes less time at 16, and 64 samples gained nothing over 16 on four sets (docs/results.md)."""


def check_micro_batch_size(config: PretrainConfig, ranks: Ranks | None = None) -> None:
    """Refuse micro-batches that are larger than what they are parts of: they would be ignored."""
    samples, whose = _of_a_process(config, ranks)
    if config.micro_batch is not None and config.micro_batch > samples:
        enough = config.micro_batch * (1 if ranks is None else ranks.size)
        raise InputError(
            f"--micro-batch={config.micro_batch} is larger than {whose}, of which it is a part: leave --micro-batch "
            f"out, or give --batch-size={enough} or more"
        )


def check_accumulation(config: PretrainConfig, batches: int) -> None:
    """Refuse to add up more batches than an epoch has: the learning rate would be that of a step that never comes."""
    if config.accumulate > batches:
        raise InputError(
            f"--accumulate={config.accumulate} adds up more than the {batches} {either(batches, 'batch', 'batches')} "
            f"that an epoch has with --batch-size={config.batch_size}: give --accumulate={batches} or less"
        )


def uneven_micro_batches(config: PretrainConfig, ranks: Ranks | None = None) -> str:
    """A sentence on micro-batches that do not divide a batch; nothing where they do.

    >>> print(uneven_micro_batches(PretrainConfig(source="scans", batch_size=16, micro_batch=3)))
    --micro-batch=3 does not divide --batch-size=16: the encoder takes 6 micro-batches of 2 to 3 samples
    >>> print(uneven_micro_batches(PretrainConfig(source="scans", batch_size=16, micro_batch=10)))
    --micro-batch=10 does not divide --batch-size=16: the encoder takes 2 micro-batches of 8 samples
    """
    samples, whose = _of_a_process(config, ranks)
    if config.micro_batch is None or config.micro_batch >= samples or samples % config.micro_batch == 0:
        return ""
    passes = -(-samples // config.micro_batch)
    fewest, most = samples // passes, -(-samples // passes)
    sizes = counted(most, "sample") if fewest == most else f"{fewest} to {counted(most, 'sample')}"
    given = f"--micro-batch={config.micro_batch}"
    return f"{given} does not divide {whose}: the encoder takes {passes} micro-batches of {sizes}"


def batch_norm_at_one(config: PretrainConfig, spatial_dims: int) -> str:
    """A sentence where BatchNorm of a network for volumes sees one sample at a time; nothing elsewhere.

    docs/decisions/volumes-at-batch-one.md has the measurements.

    >>> print(batch_norm_at_one(PretrainConfig(source="scans", encoder="resnet18_3d"), 3))
    resnet18_3d has BatchNorm and learns slowly from one sample at a time: --encoder=nf_resnet18_3d does without it
    >>> batch_norm_at_one(PretrainConfig(source="scans"), 2)
    ''
    """
    name = encoder_name(config.encoder, spatial_dims)
    at_a_time = min(config.batch_size, config.micro_batch or config.batch_size)
    is_ours = config.weights is None and config.recipe == "icone"
    if at_a_time > 1 or not is_ours or name not in RESNETS_3D or config.norm != "batch":
        return ""
    return f"{name} has BatchNorm and learns slowly from one sample at a time: --encoder={NF}{name} does without it"


def one_at_a_time(config: PretrainConfig, samples: int) -> str:
    """A sentence where a step takes one of many samples: larger batches are faster; nothing elsewhere.

    Four sets at two or three lengths say that nothing is lost by it (docs/choosing-settings.md).

    >>> print(one_at_a_time(PretrainConfig(source="scans"), 100))
    an epoch is several times as fast with --batch-size=16, where so many samples fit into memory
    >>> one_at_a_time(PretrainConfig(source="scans", batch_size=4), 100)
    ''
    """
    if config.batch_size > 1 or config.recipe != "icone" or samples < AUTO_BATCH:
        return ""
    return f"an epoch is several times as fast with --batch-size={AUTO_BATCH}, where so many samples fit into memory"


def _of_a_process(config: PretrainConfig, ranks: Ranks | None) -> tuple[int, str]:
    """How many samples of a batch one process encodes at most, and how a sentence calls them."""
    if ranks is None or ranks.size == 1:
        return config.batch_size, f"--batch-size={config.batch_size}"
    share = -(-config.batch_size // ranks.size)
    return share, f"the share of one process ({share} of --batch-size={config.batch_size})"
