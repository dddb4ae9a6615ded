"""Every setting of a training run, as frozen pydantic models: the one truth for YAML, Python and the command line.

A field that is ``auto`` is filled in by ``recipes.resolve`` when the data and the method are known, and the
reason is written to ``resolved.yaml``. Field descriptions are the command line's help. This module does not import
torch,
so that ``counterpoint --help`` answers at once.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

Auto = Literal["auto"]
Pair = Annotated[tuple[float, float], Strict(False)]  # YAML writes a pair as a list


class Settings(BaseModel):
    """Frozen and strict: wrong types and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def _hint(text: str) -> Any:
    """Remedy shown after the allowed range when a value is refused."""
    return {"hint": text}


Probability = Annotated[float, Field(ge=0, le=1)]


class SourceSettings(Settings):
    """What is read from the data."""

    labels: str = Field(
        default="auto",
        description="where labels come from: auto (sub-folder names, the npz's labels), none, "
        "or a .csv (file,label) / .npy file; training never needs them",
    )
    image_size: Annotated[int, Field(ge=8, le=1024)] | Auto = Field(
        default="auto",
        description="side in pixels to which photographs are brought before the views",
        json_schema_extra=_hint("common values are 32, 64, 96, 224"),
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        default="auto",
        description="share of the samples kept out of training for evaluation (auto: 0.2 where labels are known, "
        "else 0)",
    )
    max_bad: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="stop when more than this share of the files cannot be read"
    )


class ViewSettings(Settings):
    """How two views of one sample are drawn; a field left at auto comes from the preset."""

    preset: str = Field(
        default="auto", description="digits, small-images, photos, vectors, or none (auto: by the kind of data)"
    )
    crop_scale: Pair | Auto = Field(
        default="auto", description="share of the area a random resized crop keeps, lowest and highest"
    )
    flip: Probability | Auto = Field(default="auto", description="probability of a left-right flip")
    jitter: Probability | Auto = Field(default="auto", description="probability of colour jitter")
    jitter_strength: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto",
        description="brightness, contrast and saturation change by up to this share, hue by a quarter of it",
    )
    grayscale: Probability | Auto = Field(default="auto", description="probability of dropping the colour")
    blur: Probability | Auto = Field(default="auto", description="probability of a Gaussian blur")
    blur_sigma: Pair | Auto = Field(default="auto", description="blur width in pixels, lowest and highest")
    affine: Probability | Auto = Field(
        default="auto", description="probability of rotating, shifting, scaling and shearing"
    )
    rotate: Annotated[float, Field(ge=0, le=180)] | Auto = Field(
        default="auto", description="largest rotation in degrees"
    )
    translate: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto", description="largest shift as a share of the side"
    )
    zoom: Pair | Auto = Field(default="auto", description="scaling of the affine view, lowest and highest")
    shear: Annotated[float, Field(ge=0, le=60)] | Auto = Field(default="auto", description="largest shear in degrees")
    noise: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="vectors: standard deviation of added noise, in standard deviations of the feature"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        default="auto", description="vectors: share of features set to their mean"
    )


class ProjectorSettings(Settings):
    """The head between representation and loss."""

    kind: Literal["auto", "none", "linear", "mlp"] = Field(default="auto", description="auto: as the method has it")
    hidden: Annotated[int, Field(ge=1)] | Auto = Field(
        default="auto", description="hidden width of the mlp (auto: the larger of both ends)"
    )
    features: Annotated[int, Field(ge=2)] | Auto = Field(
        default="auto", description="dimensions of the embedding (auto: 128)"
    )


class OutputSettings(Settings):
    """The map from projector output to the vectors the loss compares."""

    nonnegative: Literal["auto", "none", "relu", "softplus", "sigmoid", "relu-gelu"] = Field(
        default="auto", description="map onto non-negative values (relu-gelu: forward ReLU, gradient of GELU)"
    )
    d0: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = Field(
        default="auto", description="use only the first d0 dimensions (DirectCLR's sub-vector)"
    )


class LossSettings(Settings):
    """The contrastive loss."""

    name: str = Field(default="infonce", description="a member of the loss catalogue (see `counterpoint list losses`)")
    epsilon: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="weight of the positive pair in the denominator: 1 is NT-Xent, 0 is DCL"
    )
    negatives: Literal["auto", "two-view", "cross-view", "same-view"] = Field(
        default="auto", description="which other vectors repel an anchor (auto: as the method has it)"
    )
    options: dict[str, bool | int | float | str | None] = Field(
        default={}, description="further arguments of the loss, such as {margin: 0.5} for triplet"
    )


class OptimSettings(Settings):
    """The optimiser and its schedule: linear warm-up, then cosine to zero, per step."""

    name: Literal["adamw", "sgd"] = Field(default="adamw", description="optimiser")
    learning_rate: Annotated[float, Field(gt=0)] | Auto = Field(
        default="auto",
        description="peak learning rate (auto: 2e-3 for adamw; 0.06 x batch / 128 for sgd)",
        json_schema_extra=_hint("common values are 1e-3 for adamw and 0.06 for sgd"),
    )
    weight_decay: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="decay of matrices and kernels, not of biases and norms"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="momentum of sgd")
    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="epochs of linear warm-up (auto: 5 % of all)"
    )


class EngineSettings(Settings):
    """Where and how the run is computed."""

    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU if there is one")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="auto: bf16 mixed precision on a GPU that has it, else fp32"
    )
    workers: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="loader processes; changes no bit of the result"
    )
    checkpoint_every: Annotated[int, Field(ge=1)] | Auto = Field(
        default="auto", description="epochs between checkpoints (auto: about ten per run)"
    )
    keep: Annotated[int, Field(ge=1)] = Field(default=2, description="number of newest checkpoints kept")


class TrainSettings(Settings):
    """Train an encoder by contrast."""

    data: str | None = Field(default=None, description="digits, a folder of images, or a .npy / .npz file")
    method: str = Field(
        default="simclr", description="simclr, ncl (non-negative, interpretable features) or directclr (no projector)"
    )
    out: str | None = Field(default=None, description="run folder to create (default: runs/DATA-METHOD)")
    encoder: str = Field(
        default="auto",
        description="convnet, resnet9, resnet18, resnet50, mlp, or timm:NAME (auto: by the kind and size of data)",
    )
    epochs: Annotated[int, Field(ge=1)] | Auto = Field(default="auto", description="passes over the training samples")
    batch_size: Annotated[int, Field(ge=2)] | Auto = Field(
        default="auto",
        description="distinct samples per step; each is seen in two views",
        json_schema_extra=_hint(
            "a contrastive loss needs at least one other sample to repel; common values are 128 to 1024"
        ),
    )
    temperature: Annotated[float, Field(gt=0)] | Auto = Field(
        default="auto",
        description="similarity scale of the loss",
        json_schema_extra=_hint("common values are 0.1 to 0.5"),
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="fixes order, views and weights")
    source: SourceSettings = SourceSettings()
    views: ViewSettings = ViewSettings()
    projector: ProjectorSettings = ProjectorSettings()
    output: OutputSettings = OutputSettings()
    loss: LossSettings = LossSettings()
    optim: OptimSettings = OptimSettings()
    engine: EngineSettings = EngineSettings()
