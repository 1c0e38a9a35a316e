"""What can be set about a run: frozen dataclasses, one per package, joined in `PretrainConfig`.

The same fields are the keyword arguments of `icone.pretrain` and, through tyro, the flags of
`icone pretrain`. The docstring under a field is its help text.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from icone.errors import InputError
from icone.recipe import (
    BASE_LR,
    FINETUNE_ENCODER,
    FINETUNE_LAYER_DECAY,
    FINETUNE_LR,
    WARMUP,
    WEIGHT_DECAY,
    Recipe,
)
from icone.validation import check_settings

Logger = Literal["tensorboard", "wandb", "mlflow"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which samples are read and how they are brought to one size and intensity range."""

    data_root: Path | None = None
    """Folder that holds the MedMNIST files (default: the medmnist package's own folder)."""
    labels: Path | None = None
    """CSV with a column of file names or ids (`id`, `path`, `file` or `image`) and a column `label`. Samples without a
    row are not labelled."""
    label_column: tuple[str, ...] = ()
    """Column of --labels, or of a CSV or DataFrame that is the source, with the labels (default: label, class or
    target). Several columns hold 0 or 1 each (multi-label); one column may hold `a|b`."""
    group_column: str | None = None
    """Column with the group of every sample (patient, well, embryo), which no split parts (default: group or patient,
    where there is one)."""
    task: Literal["auto", "classification", "regression", "multilabel"] = "auto"
    """What the labels are; auto: numbers that are not whole, or whole ones of very many values, are regression, labels
    with `|` or of several columns multilabel, all others classes."""
    axes: str | None = None
    """The axes of one sample in an array, TIFF, NIfTI, NRRD or Zarr file, of C (channels), T (time), Z, Y and X: CYX,
    ZYX or TYX; XYZC or XYZT for a NIfTI. Beside Z, the mean over T is taken (default: what the file says; else by its
    shape, where an axis of 1 to 4 at either end is taken for channels)."""
    include: tuple[str, ...] = ()
    """Folders only: take the files that one of these patterns fits, for example `*_t1.nii.gz` or `scans/*`."""
    exclude: tuple[str, ...] = ()
    """Folders only: leave out the files that one of these patterns fits, for example `*_mask.png` or `thumbnails`."""
    no_labels: bool = False
    """Take no labels from subfolders, tables or array files; those of --labels count all the same."""
    channels_from: str | None = None
    """Folders only: several files are the channels of one sample, for example `{id}_{t1,t2,flair}.nii.gz`."""
    missing_channels: Literal["error", "zero"] = "error"
    """What becomes of a sample for which --channels-from finds no file of a channel: an error, or zeros there."""
    tiles: int | None = None
    """One or a few huge images or volumes are the data: every tile with this edge in pixels or voxels that is not
    background is a sample. For .zarr, .h5, .tif and .npy, of which only tiles are read."""
    stride: int | None = None
    """From one tile to the next, in pixels or voxels (default: the edge of a tile, so that tiles do not overlap)."""
    background: Literal["auto", "dark", "bright", "keep"] = "auto"
    """Which side of Otsu's threshold is background; tiles with less than 5 % beside it are left out. auto: the side
    whose values vary less; keep: leave out nothing."""
    crop: int | tuple[int, ...] | None = None
    """Samples keep their own resolution (or --spacing), and every view is a random crop with this edge, or with these
    edges, one per axis, in pixels or voxels. Evaluation takes the mean over windows that cover the sample. Such crops
    replace those of the views, whose crop-scale counts only where it is not its default."""
    crop_overlap: float = 0.3
    """With --crop: the crops of one sample in one step share at least this part of their volume, each two of them."""
    split: Literal["train", "val", "test"] = "train"
    """Official split to read, for sources that have one."""
    size: int | None = None
    """Edge length in pixels or voxels that every sample is brought to (default: 224 in 2D, 64 in 3D)."""
    fit: Literal["auto", "stretch", "pad"] = "auto"
    """How a sample that is not square is brought to that size; auto: images stretch, volumes pad."""
    spacing: float | None = None
    """Volumes only: millimetres per voxel that every volume is resampled to, then centre-cropped or padded."""
    channels: Literal["auto", "gray", "rgb"] = "auto"
    """Turn every image into this; auto keeps what the files hold and refuses a mixture."""
    colour: Literal["auto", "yes", "no"] = "auto"
    """Whether three channels are red, green and blue, whose views change hue and saturation, or channels that change
    each by itself; auto: what the files declare, and colours where they do not say."""
    intensity: Literal["auto", "percentile", "sample", "range"] = "auto"
    """Scaling to [0, 1] by the 0.5 and 99.5 percentiles of the dataset or of each sample, or by the range of the
    type; auto: range for 8-bit images, sample where the samples share no unit, else percentile. Every channel has its
    own percentiles; red, green and blue (colour PNG or TIFF, --channels rgb) share theirs."""
    window: tuple[float, float] | None = None
    """Instead of --intensity: the values that become 0 and 1, for every channel; what lies outside is clipped. For CT
    in Hounsfield units, for example -160 240."""
    subset: int | None = None
    """Use this many samples, drawn once and stratified by class where there are labels."""
    test_fraction: float = 0.0
    """Hold out this share (stratified) from pretraining, for evaluation. `icone paper` holds out 0.2; the paper does
    not say how large its test part is."""
    imbalance: float | None = None
    """Subsample half of the classes by this factor (the paper's imbalance ratio k)."""
    split_seed: int = 0
    """Seed of subset, partition and imbalance; the same for all methods and training seeds."""
    skip_unreadable: bool = False
    """Leave out files that cannot be read, hold NaN or are constant, and list them."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The network that is trained."""

    encoder: str = "auto"
    """`vit_small_patch16` or any timm name (2D); `resnet10_3d`…`resnet50_3d`, the same without BatchNorm
    `nf_resnet10_3d`…`nf_resnet50_3d`, `monai:SwinUNETR`, `monai:SegResNet`, `monai:DenseNet121`, `monai:MedNeXtS`,
    `monai:ViT`, `nnunet:ResEncL` (3D); `mlp` (points). auto: vit_small_patch16 for images,
    nf_resnet18_3d for volumes, mlp for points; paper: the same, but resnet18_3d for volumes, which auto is too with
    --weights, --norm or --recipe paper. To try things out in seconds: `test_resnet` or `test_vit` for images,
    `nf_resnet10_3d` with --width 0.25 for volumes."""
    weights: str | None = None
    """What the encoder starts from, instead of random weights: `timm` or `timm:TAG` (those of the named model),
    `hf-hub:OWNER/NAME`, `medicalnet` (resnet…_3d), another run's folder, a folder, a .safetensors or .pth file."""
    norm: Literal["batch", "group", "instance"] = "batch"
    """Normalisation layer of `resnet…_3d`; other networks have that of their papers."""
    width: float = 1.0
    """Multiplies the channels of the 3D networks; below 1 for quick trials on a CPU."""
    features: int | None = None
    """Size of the representation where the network leaves it open (default: 512 in 3D, 64 for the MLP)."""
    freeze_patch_embed: bool = False
    """Transformers: the projection of patches keeps the weights that it starts with (Chen et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class ImageViews:
    """Random views of 2D images. A probability of 0 turns a step off.

    The defaults are those of the paper's appendix A, but for `crop_ratio`, which it does not print (torchvision's).
    """

    crop_scale: tuple[float, float] = (0.2, 1.0)
    """Share of the area that a crop keeps; `1 1` turns cropping off."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Range of the crop's aspect ratio (not printed in the paper; torchvision's default)."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    vertical_flip: float = 0.0
    """Probability of a vertical flip (not in the paper; useful for cells and tissue)."""
    jitter: float = 0.8
    """Probability of the colour jitter as a whole."""
    brightness: float = 0.4
    """Strength of the jitter of the brightness: a factor from 1 - s to 1 + s."""
    contrast: float = 0.4
    """Strength of the jitter of the contrast."""
    saturation: float = 0.4
    """Strength of the jitter of the saturation; RGB only."""
    hue: float = 0.1
    """Largest turn of the hue, as a share of the colour circle; RGB only."""
    grayscale: float = 0.2
    """Probability of dropping the colour; RGB only."""
    blur: float = 1.0
    """Probability of the Gaussian blur (the paper prints none, so every view is blurred)."""
    blur_kernel: int = 23
    """Edge of the kernel in pixels, odd."""
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Range of the blur's standard deviation in pixels."""


@dataclass(frozen=True, kw_only=True)
class VolumeViews:
    """Random views of volumes. A probability of 0 turns a step off.

    The defaults are those of the paper's appendix A; that a scale is a share of the volume is our reading.
    """

    crop_scale: tuple[float, float] = (0.5, 1.0)
    """Share of the volume that a crop keeps; `1 1` turns cropping off."""
    flip: float = 0.5
    """Probability of a flip, for each axis on its own."""
    rotate: float = 0.5
    """Probability of a quarter-turn rotation in a random plane."""
    shift: float = 0.1
    """Largest additive intensity offset, in units of the [0, 1] range."""
    contrast: tuple[float, float] = (0.8, 1.2)
    """Range of the multiplicative intensity factor."""
    noise: float = 0.3
    """Probability of Gaussian noise."""
    noise_sigma: float = 0.1
    """Standard deviation of the noise, in units of the [0, 1] range."""
    blur: float = 0.3
    """Probability of a blur (3³ mean)."""


@dataclass(frozen=True, kw_only=True)
class PointViews:
    """Random views of points (vectors): additive Gaussian noise, by default that of the paper's synthetic study."""

    noise_sigma: float = 0.15
    """Standard deviation of the noise."""


@dataclass(frozen=True, kw_only=True)
class ViewsConfig:
    """How many random views of each sample, and how they are made."""

    views: int = 2
    """Views per sample and step, at least 2 (the paper's 2; 4 in its synthetic study)."""
    pipeline: Annotated[str, tyro.conf.Suppress] = "auto"
    """What makes the views: ours, or a Python object, of which this is the description."""
    image_views: ImageViews = ImageViews()
    volume_views: VolumeViews = VolumeViews()
    point_views: PointViews = PointViews()


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The method and its optimisation.

    Epochs, learning rate, weight decay and cosine are the paper's. The default recipe is not: it scales the learning
    rate and changes the objective, and `--recipe paper` is the printed one. The paper varies the batch size, and prints
    nothing of clipping, accumulation and precision.
    """

    method: str = "icone"
    """`icone methods` lists them."""
    options: tuple[str, ...] = ()
    """Settings of the method as name=value, for example `diversity=sigreg view_weight=0`."""
    batch_size: int = 1
    """Samples per step."""
    epochs: int = 100
    """Passes over all samples."""
    recipe: Recipe = "icone"
    """icone: AdamW is scaled by the batch size and BatchNorm of the encoder reaches back over 16 samples, so that an
    epoch does nearly the same at any batch size. IConE differs from its paper where that made it work at small ones.
    paper: optimizer, objective and BatchNorm as printed; what the paper leaves open stays as it is here."""
    lr: float = BASE_LR
    """Learning rate of AdamW at the start, for 16 samples a step (recipe paper: for any number); it follows a cosine to
    zero. With --weights the encoder learns at half of it."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Of the learning rate: a cosine to zero, or the same rate throughout, as in the paper's synthetic study."""
    weight_decay: float = WEIGHT_DECAY
    """Decoupled weight decay of AdamW."""
    layer_decay: float | None = None
    """By what the learning rate falls from a layer of the encoder to the one before it (default: 0.75 with --weights,
    else 1)."""
    warmup: float | None = None
    """Share of the steps over which the learning rate rises from zero (default: 0.05; with --recipe paper 0)."""
    clip_gradient: float | None = None
    """Largest norm of the whole gradient (default: the method's own, which is none for IConE)."""
    accumulate: int = 1
    """Batches whose gradients are summed before an optimizer step; at most as many as an epoch has."""
    micro_batch: int | None = None
    """Samples of a batch that pass through the encoder at a time, so that a batch of any size takes the memory of so
    many. Where it does not divide --batch-size, micro-batches are of nearly equal size, and none is larger. The
    gradient is that of the whole batch, which costs most methods a second pass (`icone methods`). BatchNorm of the
    encoder sees one micro-batch at a time, and in the recipe icone reaches back over 16 samples."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the encoder; auto: bf16 autocast on CUDA, fp32 elsewhere."""
    seed: int = 0
    """Seed of initial weights, views and data order."""

    @property
    def passes_per_step(self) -> int:
        """Passes of the encoder, forward and back, of which a step consists.

        >>> PretrainConfig(source="scans", batch_size=16, micro_batch=3, accumulate=2).passes_per_step
        12
        """
        return self.accumulate * -(-self.batch_size // (self.micro_batch or self.batch_size))


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Where and how the run executes; a resumed run may differ here.

    Resumed with the same settings on the same machine, a run ends bit for bit as it would have. Another device, engine
    or number of CPU threads adds up in another order and changes the last bits, which training amplifies; with
    `--precision auto` a GPU also computes the encoder in bf16 and a CPU in float32. `--stop-on-collapse` can end a run
    early. The other settings here change no number of the run.
    """

    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; auto: CUDA where there is one."""
    engine: Literal["auto", "ahead", "captured", "eager"] = "auto"
    """captured: the step is compiled and replayed as one CUDA graph; eager: operation by operation; auto: on CUDA
    captured from 100 steps on, compiled too where that pays (20,000 steps, 5,000 on volumes, a micro-batch counted as
    one), and eager, saying why, where that fails; ahead: as auto, but it begins at once, uncompiled, and goes on
    compiled when another process has compiled the step: the last bits then depend on when that is."""
    checkpoint_activations: Literal["auto", "on", "off"] = "auto"
    """on: the backward pass computes the activations inside the blocks of the encoder again instead of keeping them:
    less memory and up to a third more time; auto: on from the first step that does not fit the memory of the GPU."""
    workers: int = 2
    """Threads that read and decode files."""
    memory_gb: float | None = None
    """Decoded samples are kept in memory up to this size, else read anew (default: half of what is free)."""
    cache: str = "auto"
    """Folder that keeps prepared samples for later runs (`icone cache` shows it), or `off`; auto: `icone` in the
    user's cache folder, $XDG_CACHE_HOME or ~/.cache."""
    checkpoint_seconds: float = 120.0
    """Save the state this often, at the next step; also after an epoch where saving takes less than 1 % of the time
    since the last."""
    probe_every: int | None = None
    """Measure the features' geometry on a few samples every so many epochs, to notice a collapse, and with labels a
    linear and a kNN probe of them; 0: never (default: 5, and on a GPU more where epochs are so short that this would
    take more than 3 % of the time)."""
    stop_on_collapse: bool = False
    """End the run, with its state saved, when its features have collapsed."""
    snapshots: tuple[int, ...] = ()
    """Keep the encoder's weights after so many epochs, one or several numbers, in snapshots/ of the run folder. Epochs
    of an extended run count from its beginning."""
    log: tuple[Logger, ...] = ()
    """Write the history to these tools too, where they are installed."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(DataConfig, EncoderConfig, ViewsConfig, TrainingConfig, RuntimeConfig):
    """Everything about one pretraining run."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A folder of images or volumes, an .npy/.npz/.zarr/.h5 file (one array in it: FILE.h5:/PATH), a CSV with a column
    `path`, `medmnist:NAME@SIZE` or `synthetic:NAME`."""

    def __post_init__(self) -> None:
        """Refuse what no run can use; what depends on the data is checked where it is known."""
        check_settings(self)
        if self.window is not None and self.intensity != "auto":
            raise InputError(f"--window replaces --intensity={self.intensity}: give one of the two")
        if self.tiles is None and (self.stride is not None or self.background != "auto"):
            raise InputError("--stride and --background are about tiles: give --tiles too")
        if self.tiles is not None and (self.spacing is not None or self.channels_from is not None):
            raise InputError("--tiles takes files at their own resolution: leave --spacing and --channels-from out")
        if self.crop is None and self.crop_overlap != DataConfig.crop_overlap:
            raise InputError("--crop-overlap is about crops: give --crop too")
        if self.crop is not None and (self.size is not None or self.fit != "auto" or self.tiles is not None):
            raise InputError("--crop keeps the resolution of the samples: leave --size, --fit and --tiles out")
        if self.stop_on_collapse and self.probe_every == 0:
            raise InputError("--stop-on-collapse needs measurements: give a --probe-every of 1 or more")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How a run's encoder is trained with labels."""

    freeze: float = 0.0
    """Share of the encoder's layers, from the input on, that do not learn: 0 all learn, 0.5 the second half, 1 only the
    new linear layer."""
    fraction: float = 1.0
    """Use this share of the training labels, stratified, with whole groups, and at least one label of every class."""
    epochs: int | None = None
    """Passes over the labels at most; with a validation part --patience ends it earlier (default: 50 epochs, with few
    labels each of several passes, so that all have 1000 steps)."""
    patience: int = 10
    """Stop after so many epochs in which the validation part did not get better; the best epoch is kept."""
    val_fraction: float = 0.0
    """Share of the training labels that does not train and decides when to stop; 0: all train, for all epochs. Samples
    that a column `split` calls val are used instead, where there are such."""
    balance_classes: bool = True
    """Tell classes apart as if each had as many samples as the others (logit adjustment): what balanced accuracy
    counts. Without it a rare class is predicted more rarely, as it is in the labels."""
    batch_size: int = 16
    """Samples per step."""
    lr: float = FINETUNE_LR
    """Learning rate of the new linear layer, for 16 samples a step."""
    encoder_lr: float = FINETUNE_ENCODER
    """Learning rate of the encoder's last layer, as a share of --lr."""
    layer_decay: float = FINETUNE_LAYER_DECAY
    """By what the learning rate falls from a layer of the encoder to the one before it; 0.75 is usual for large
    transformers that began from --weights."""
    weight_decay: float = WEIGHT_DECAY
    """Decoupled weight decay of AdamW."""
    warmup: float = WARMUP
    """Share of the steps over which the learning rate rises from zero; after it, a cosine to zero."""
    augment: Literal["weak", "run", "none"] = "weak"
    """weak: the crops (of half a sample or more), flips and turns of the run; run: its views as they are; none."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the encoder; auto: bf16 autocast on CUDA, fp32 elsewhere."""
    seed: int = 0
    """Seed of the data order, the views and the draw of --fraction; --split-seed of the run parts the samples."""

    def __post_init__(self) -> None:
        """Refuse values out of their ranges."""
        check_settings(self)


Config = typing.TypeVar("Config", bound="DataConfig | TrainingConfig")


def with_given(config: Config, **settings: Any) -> Config:
    """A configuration with those of the settings that are not None.

    >>> with_given(DataConfig(size=32), size=None, split_seed=3).size
    32
    """
    return dataclasses.replace(config, **{name: value for name, value in settings.items() if value is not None})


OBJECT = "object:"
"""Begins the description of a Python object in a configuration: JSON cannot hold the object itself."""


def is_object(setting: str) -> bool:
    """Whether a setting only describes a Python object that was given."""
    return setting.startswith(OBJECT)
