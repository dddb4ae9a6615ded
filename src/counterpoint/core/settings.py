"""Every setting of a training run, and those of a verb's subject, as frozen pydantic models.

They are the one definition for YAML, Python and the command line. A field that is ``auto`` is filled in by
``runs.resolve`` when the data and the method are known, and the reason is written to ``resolved.yaml``. Field
descriptions are the command line's help. This module does not import torch, so that ``counterpoint --help`` answers at
once.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

Auto = Literal["auto"]
Open = TypeVar("Open")  # what a number of views is until its preset fills it in: auto, or Never once all are filled in
Off = Literal["none"]
Pair = Annotated[tuple[float, float], Strict(False)]  # YAML writes a pair as a list


class Settings(BaseModel):
    """Frozen and strict: wrong types and unknown keys are errors."""

    # Strict: "1" is no number, and 1.0 no count. Frozen: what a run records is what it was given.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def option(description: str, default: Any = None, **extra: Any) -> Any:
    """A field of settings.

    Args:
        description: text of the help; a field without one has no flag.
        default: value of the field if it is not given; ``...`` if it must be given.
        extra: ``hint``, the remedy shown after the allowed range when a value is refused; and what a field says of its
            flag beside its type: ``place`` (it is given by its place, under this name), ``flag`` (its own), ``whole``
            (commas belong to the name), ``alone`` (what the flag without a value means), ``rare`` (see ``--set``).
    """
    return Field(default=default, description=description, json_schema_extra=extra)


Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class SourceSettings(Settings):
    """The samples and labels that are read from the data."""

    labels: str = option(
        "where labels come from: auto (sub-folder names, the npz's labels), none, "
        "or a .csv (file,label) / .npy file; training never needs them",
        "auto",
    )
    image_size: Annotated[int, Field(ge=8, le=1024)] | Auto = option(
        "side in pixels to which photographs are resized before the views",
        "auto",
        hint="common values are 32, 64, 96, 224",
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] | Auto = option(
        "share of the samples kept out of training for evaluation (auto: 0.2 where labels are known, else 0)", "auto"
    )
    max_bad: Share = option("stop when more than this share of the files cannot be read", 0.01)
    root: str = option("folder of the named data sets (cifar10, stl10, ...), in torchvision's layout", "data")
    split: str = option("part of a named data set: train (auto), test, ...", "auto")
    classes: str = option("names of the classes whose samples are taken, separated by commas, such as cat,dog", "all")
    exclude: str = option(
        "text file with the names of samples to leave out, one per line, as `counterpoint recommend` "
        "writes it: names of files relative to the data, or numbers of rows",
        "none",
    )
    image_column: str = option("tables: column of images or vectors (auto: by its type)", "auto")
    label_column: str = option("tables, tar shards: column or field of labels (auto: by its name)", "auto")
    drop_columns: str = option(
        "tables: columns to leave out, separated by commas; or unusable: dates, texts, ids, constants", "none"
    )
    columns: str = option("tables: run whose columns, categories and medians are taken (auto: the table's own)", "auto")
    altered: Literal["refuse", "reindex"] = option(
        "samples whose content changed since the data were indexed: refuse them, or take them as they are now", "refuse"
    )
    imbalance: Literal["none", "exponential", "step"] = option(
        "cut the training classes to a long tail (exponential) or to two sizes (step)", "none"
    )
    imbalance_ratio: Annotated[float, Field(ge=1)] = option(
        "size of the largest class over that of the smallest", 100.0
    )
    class_counts: list[Count] | Off = option(
        "training samples of each class in the order of class names, such as [500, 50, 5]", "none"
    )
    label_share: Annotated[float, Field(gt=0, le=1)] = option(
        "share of each class's training samples that are trained on, at least one; the others are left out",
        1.0,
        hint="0.01 and 0.1 are common in fine-tuning with few labels",
    )
    sampling: Literal["natural", "balanced", "fixed"] = option(
        "draw samples as often as they occur, or every class equally often, or the same batches in each "
        "epoch, in the order of the data",
        "natural",
    )


class PartSettings(Settings):
    """The data of a verb; None keeps the run's value."""

    split: str | None = None
    classes: str | None = None
    root: str | None = None
    image_size: int | None = None
    max_bad: float | None = None
    altered: Literal["refuse", "reindex"] | None = None
    label_column: str | None = None
    drop_columns: str | None = None

    @property
    def part(self) -> dict[str, Any]:
        """The settings of ``source`` that were given."""
        return self.model_dump(include=set(PartSettings.model_fields), exclude_none=True)


class LookSettings(PartSettings):
    """The encoder of a verb, and its device."""

    weights: str | None = option("with --encoder: its weights: .safetensors, or a .pth, .ckpt or .bin of tensors")
    mean: Annotated[tuple[float, ...], Strict(False)] | None = option(
        "with --encoder: mean of its input in [0, 1], by channel (default: as its library has it)"
    )
    std: Annotated[tuple[float, ...], Strict(False)] | None = option(
        "with --encoder: standard deviation of its input, likewise"
    )
    checkpoint: str | None = option(
        "step of a saved checkpoint whose encoder is taken, or all (default: the last state)"
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto: the GPU if there is one", "auto")
    cache: bool = option("keep features in the cache, and take them from there", True)


class ViewNumbers(Settings, Generic[Open]):
    """The random changes that make views of a sample; a field left at auto comes from the preset."""

    preset: str = option(
        "a recipe, see `counterpoint list views` (auto: by the kind of data), or package.module:name of a "
        "function that makes views of your own",
        "auto",
    )
    crop_scale: Pair | Open = option("share of the area a random resized crop keeps, lowest and highest", "auto")
    flip: Share | Open = option("probability of a left-right flip", "auto")
    jitter: Share | Open = option("probability of colour jitter", "auto")
    jitter_strength: Share | Open = option(
        "brightness, contrast and saturation change by up to this share, hue by a quarter of it", "auto"
    )
    jitter_saturation: Share | Open = option(
        "saturation's share of jitter_strength: 1 is the same strength, 0 leaves it alone", "auto"
    )
    grayscale: Share | Open = option("probability of dropping the colour", "auto")
    blur: Share | Open = option("probability of a Gaussian blur", "auto")
    blur_second: Share | Open = option(
        "the same for the second view, where the two differ (auto: the preset's)", "auto"
    )
    blur_sigma: Pair | Open = option("blur width in pixels, lowest and highest", "auto")
    solarize: Share | Open = option("probability of inverting the bright half of the values", "auto")
    solarize_second: Share | Open = option("the same for the second view (auto: the preset's)", "auto")
    interpolation: Literal["auto", "bilinear", "bicubic"] = option("interpolation that resizes a crop", "auto")
    affine: Share | Open = option("probability of rotating, shifting, scaling and shearing", "auto")
    rotate: Annotated[float, Field(ge=0, le=180)] | Open = option("largest rotation in degrees", "auto")
    translate: Share | Open = option("largest shift as a share of the side", "auto")
    zoom: Pair | Open = option("scaling of the affine view, lowest and highest", "auto")
    shear: Annotated[float, Field(ge=0, le=60)] | Open = option("largest shear in degrees", "auto")
    fill: Literal["auto", "black", "edge"] = option(
        "what surrounds a picture that is moved: black, or the nearest pixels of its edge", "auto"
    )
    noise: NotNegative | Open = option(
        "vectors: standard deviation of added noise, in standard deviations of the feature", "auto"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | Open = option("vectors: share of features set to their mean", "auto")
    local_crops: Annotated[int, Field(ge=0, le=64)] = option(
        "multi-crop: local views beside the two global ones, for losses of a distribution", 0, hint="6 is usual"
    )
    local_side: Annotated[float, Field(gt=0, le=1)] | Open = option(
        "side of a local view as a share of a global one's (auto: 0.5)", "auto"
    )
    local_scale: Pair | Open = option("share of the area that a local view's crop keeps, lowest and highest", "auto")


ViewSettings = ViewNumbers[Auto]


class ProjectorSettings(Settings):
    """The head between representation and loss."""

    kind: Literal["auto", "none", "linear", "mlp", "low-rank", "diagonal", "sparse"] = option(
        "auto: the method's; low-rank is fixed at random, diagonal a trained scale per dimension, sparse keeps the "
        "largest values (as `counterpoint sparsify` trains it)",
        "auto",
    )
    layers: Annotated[int, Field(ge=2, le=8)] | Auto = option("layers of the mlp (auto: the method's)", "auto")
    hidden: Count | Auto = option("hidden width of the mlp (auto: the larger of both ends)", "auto")
    features: Annotated[int, Field(ge=2)] | Auto = option("dimensions of the embedding (auto: 128)", "auto")
    norm: Literal["auto", "none", "batch", "batch-plain"] = option(
        "BatchNorm after the mlp's hidden layers, plain without trained scale and shift (auto: the method's)",
        "auto",
    )
    output_norm: Literal["auto", "none", "batch", "batch-plain"] = option(
        "the same after its last layer, where its hidden layers have one (auto: the method's)", "auto"
    )
    rank: Count | Auto = option("rank of the low-rank projector (auto: half the width)", "auto")
    active: Count = option("values that the sparse projector keeps of each sample", 8)


class TargetSettings(Settings):
    """The other branch of methods that have one: momentum encoder, queue, predictor."""

    momentum: Share | Auto = option("share of the momentum encoder that a step keeps (auto: the method's)", "auto")
    queue_size: Count | Auto = option("past keys that MoCo contrasts with (auto: 4096, or what the data allow)", "auto")
    predictor_hidden: Count | Auto = option(
        "hidden width of the predictor of byol and simsiam (auto: the method's)", "auto"
    )


class OutputSettings(Settings):
    """The map from projector output to the vectors the loss compares."""

    nonnegative: Literal["auto", "none", "relu", "softplus", "sigmoid", "relu-gelu"] = option(
        "map onto non-negative values (relu-gelu: forward ReLU, gradient of GELU)", "auto"
    )
    d0: Count | Literal["auto", "all"] = option("use only the first d0 dimensions (DirectCLR's sub-vector)", "auto")


class LossSettings(Settings):
    """The contrastive loss."""

    name: str = option(
        "a member of the loss catalogue, see `counterpoint list losses` (auto: the method's), or "
        "package.module:name of a function of your own that makes one",
        "auto",
    )
    epsilon: NotNegative = option("weight of the positive pair in the denominator: 1 is NT-Xent, 0 is DCL", 1.0)
    negatives: Literal["auto", "two-view", "cross-view", "same-view"] = option(
        "which other vectors repel an anchor (auto: the method's)", "auto"
    )
    options: dict[str, bool | int | float | str | None] = option(
        "further arguments of the loss, such as {margin: 0.5} for triplet", {}
    )


class OptimSettings(Settings):
    """The optimiser and its schedule."""

    name: Literal["adamw", "adam", "sgd", "lars"] = option("optimiser", "adamw")
    learning_rate: Positive | Auto = option(
        "peak learning rate (auto: 2e-3 for adamw and adam; 0.06 x batch / 128 for sgd; 0.3 x batch / 256 for lars)",
        "auto",
        hint="common values are 1e-3 for adamw and 0.06 for sgd",
    )
    weight_decay: NotNegative | Auto = option("decay of matrices and kernels, not of biases and norms", "auto")
    decay_all: bool = option("decay biases, scales and shifts as well, as in torch's optimisers", False)
    momentum: Annotated[float, Field(ge=0, lt=1)] = option("momentum of sgd and lars", 0.9)
    trust: Positive = option("trust coefficient of lars: length of a layer's step over that of its weights", 1e-3)
    trust_clip: bool = option("lars: never step longer than the learning rate alone would (as NCL's code)", False)
    schedule: Literal["cosine", "epoch-cosine", "constant"] = option(
        "after the warm-up: cosine per step, cosine per epoch, or constant", "cosine"
    )
    warmup_epochs: NotNegative | Auto = option("epochs of linear warm-up (auto: 5 % of all)", "auto")
    peak_epochs: NotNegative = option("epochs at the peak, between warm-up and cosine", 0.0)
    cosine_epochs: Positive | Off = option(
        "epochs from the peak to the cosine's end, after which the rate rises again (none: all that are left)", "none"
    )
    final_share: Share = option("where the cosine ends, as a share of the peak", 0.0)
    clip: Positive | Off = option("largest norm of the gradient; a longer one is scaled down to it", "none")


class EngineSettings(Settings):
    """Device, precision, checkpoints and logs of the run."""

    device: Literal["auto", "cpu", "cuda"] = option("auto: the GPU if there is one", "auto")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "of the encoder; losses and normalisation stay in float32 (auto: bf16 mixed precision on a GPU "
        "that has it, else fp32)",
        "auto",
    )
    compile: bool = option("compile the encoder with torch.compile (needs a C++ compiler)", False)
    strategy: Literal["auto", "ddp", "fsdp"] = option(
        "several ranks: a copy of the encoder on each (auto: ddp), or shards of it (fsdp)", "auto"
    )
    chunk_size: Count | Off = option(
        "samples encoded at once by gradient caching: large batches, with all their negatives, on little memory", "none"
    )
    chunk_norm: bool = option("with chunk_size: allow BatchNorm, with the statistics of each chunk", False)
    encode_views: Literal["auto", "together", "apart"] = option(
        "both views in one pass of the encoder, with BatchNorm statistics of both, or in one each", "auto"
    )
    workers: Annotated[int, Field(ge=0, le=64)] = option("threads that fetch ahead; changes no bit of the result", 0)
    checkpoint_every: Count | Auto = option("epochs between checkpoints (auto: about ten per run)", "auto")
    checkpoint_steps: Count | Off = option(
        "also save after this many steps, in the middle of an epoch or at its end", "none"
    )
    checkpoint_at: list[Count] | Off = option(
        "epochs after which a checkpoint is saved that stays, such as [100, 300, 500]", "none"
    )
    keep: Count = option("number of newest checkpoints kept", 2)
    knn_every: Count | Off = option(
        "epochs between kNN checks on held-out samples while training (needs labels)", "none"
    )
    tensorboard: bool = option("write TensorBoard events to RUN/tensorboard (extra)", False)
    wandb: bool = option("log to Weights & Biases (extra)", False)


class TrainSettings(Settings):
    """Train an encoder by contrast."""

    data: str | None = option(
        "a named set (see `counterpoint list data`), a folder of images or tar shards, or a file: "
        ".npy, .npz, .csv, .tar, .parquet, .arrow, .feather"
    )
    recipe: str | None = option(
        "settings of a published table, see `counterpoint list recipes`; whatever is given beside it wins"
    )
    method: str = option("see `counterpoint list methods`", "simclr")
    out: str | None = option("run folder to create (default: runs/DATA-METHOD, or runs/DATA-RECIPE)")
    encoder: str = option(
        "convnet, resnet9-narrow, resnet9, resnet18, resnet50, mlp, identity, or timm:NAME (auto: by the kind and "
        "size of data)",
        "auto",
    )
    stem: Literal["auto", "small", "small-padded", "small-cut", "large"] = option(
        "of the built-in ResNets: small keeps the side of the images, padded adds two pixels to it and cut "
        "takes two, large leaves a quarter of it (auto: large above 64 px)",
        "auto",
    )
    initial: Literal["uniform", "normal", "normal-zero"] = option(
        "how kernels of the built-in ResNets are drawn: uniform as torch does, normal as torchvision, zero "
        "with residual branches that begin at 0",
        "uniform",
    )
    init: str | None = option(
        "weights to begin with: a run folder, a file of any framework (.safetensors, .pth, .ckpt) for "
        "--encoder; nothing is ever downloaded"
    )
    epochs: Count | Auto = option("passes over the training samples", "auto")
    batch_size: Annotated[int, Field(ge=2)] | Auto = option(
        "distinct samples per step; each is seen in two views",
        "auto",
        hint="a contrastive loss needs at least one other sample to repel; common values are 128 to 1024",
    )
    temperature: Positive | Auto = option("similarity scale of the loss", "auto", hint="common values are 0.1 to 0.5")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = option("fixes order, views and weights", 0)
    source: SourceSettings = SourceSettings()
    views: ViewSettings = ViewSettings()
    projector: ProjectorSettings = ProjectorSettings()
    target: TargetSettings = TargetSettings()
    output: OutputSettings = OutputSettings()
    loss: LossSettings = LossSettings()
    optim: OptimSettings = OptimSettings()
    engine: EngineSettings = EngineSettings()
