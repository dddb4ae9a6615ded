"""Every setting of a training run, as frozen pydantic models: the one truth for YAML, Python and the command line.

A field that is ``auto`` is filled in by ``runs.resolve`` when the data and the method are known, and the reason is
written to ``resolved.yaml``. Field descriptions are the command line's help. This module does not import torch, so that
``counterpoint --help`` answers at once.
"""

from typing import Annotated, Literal

from pydantic import Field

from counterpoint.core.data_settings import Auto, Count, Off, Settings, SourceSettings, ViewSettings, hint


class ProjectorSettings(Settings):
    """The head between representation and loss."""

    kind: Literal["auto", "none", "linear", "mlp", "low-rank", "diagonal"] = Field(
        default="auto",
        description="auto: as the method has it; low-rank is fixed at random, diagonal a trained scale per dimension",
    )
    layers: Annotated[int, Field(ge=2, le=8)] | Auto = Field(
        default="auto", description="layers of the mlp (auto: as the method has it)"
    )
    hidden: Count | Auto = Field(default="auto", description="hidden width of the mlp (auto: the larger of both ends)")
    features: Annotated[int, Field(ge=2)] | Auto = Field(
        default="auto", description="dimensions of the embedding (auto: 128)"
    )
    norm: Literal["auto", "none", "batch", "batch-plain"] = Field(
        default="auto",
        description="BatchNorm after the mlp's hidden layers, plain without trained scale and shift (auto: as the "
        "method has it)",
    )
    output_norm: Literal["auto", "none", "batch", "batch-plain"] = Field(
        default="auto",
        description="the same after its last layer, where its hidden layers have one (auto: as the method has it)",
    )
    rank: Count | Auto = Field(default="auto", description="rank of the low-rank projector (auto: half the width)")


class TargetSettings(Settings):
    """The other branch of methods that have one: momentum encoder, queue, predictor."""

    momentum: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto", description="share of the momentum encoder that a step keeps (auto: as the method has it)"
    )
    queue_size: Count | Auto = Field(
        default="auto", description="past keys that MoCo contrasts with (auto: 4096, or what the data allow)"
    )
    predictor_hidden: Count | Auto = Field(
        default="auto", description="hidden width of the predictor of byol and simsiam (auto: as the method has it)"
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

    name: str = Field(
        default="auto",
        description="a member of the loss catalogue, see `counterpoint list losses` (auto: the method's), or "
        "package.module:name of a function of your own that makes one",
    )
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
    """The optimiser and its schedule."""

    name: Literal["adamw", "adam", "sgd", "lars"] = Field(default="adamw", description="optimiser")
    learning_rate: Annotated[float, Field(gt=0)] | Auto = Field(
        default="auto",
        description="peak learning rate (auto: 2e-3 for adamw and adam; 0.06 x batch / 128 for sgd; 0.3 x batch / 256 "
        "for lars)",
        json_schema_extra=hint("common values are 1e-3 for adamw and 0.06 for sgd"),
    )
    weight_decay: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="decay of matrices and kernels, not of biases and norms"
    )
    decay_all: bool = Field(
        default=False, description="decay biases, scales and shifts as well, as torch's optimisers do by themselves"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="momentum of sgd and lars")
    trust: Annotated[float, Field(gt=0)] = Field(
        default=1e-3, description="trust coefficient of lars: length of a layer's step over that of its weights"
    )
    trust_clip: bool = Field(
        default=False, description="lars: never step longer than the learning rate alone would (as NCL's code)"
    )
    schedule: Literal["cosine", "epoch-cosine", "constant"] = Field(
        default="cosine", description="after the warm-up: cosine per step, cosine per epoch, or as it is"
    )
    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="epochs of linear warm-up (auto: 5 % of all)"
    )
    peak_epochs: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="epochs at the peak, between warm-up and cosine"
    )
    cosine_epochs: Annotated[float, Field(gt=0)] | Off = Field(
        default="none",
        description="epochs from the peak to the cosine's end, after which the rate rises again (none: all that are "
        "left)",
    )
    final_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="where the cosine ends, as a share of the peak"
    )
    layer_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="factor of the learning rate from each layer of the encoder to the one before it; the last layer "
        "has it once, heads have the full rate",
        json_schema_extra=hint("0.65 to 0.9 are common in fine-tuning"),
    )
    clip: Annotated[float, Field(gt=0)] | Off = Field(
        default="none", description="largest norm of the gradient; a longer one is scaled down to it"
    )


class EngineSettings(Settings):
    """Where and how the run is computed."""

    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU if there is one")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto",
        description="of the encoder; losses and normalisation stay in float32 (auto: bf16 mixed precision on a GPU "
        "that has it, else fp32)",
    )
    compile: bool = Field(default=False, description="compile the encoder with torch.compile (needs a C++ compiler)")
    strategy: Literal["auto", "ddp", "fsdp"] = Field(
        default="auto", description="several ranks: a copy of the encoder on each (auto: ddp), or shards of it (fsdp)"
    )
    sync_norm: bool = Field(
        default=True,
        description="several ranks: BatchNorm over the whole batch, as one process has it; without it BatchNorm is "
        "refused",
    )
    accumulate: Count = Field(
        default=1, description="sub-batches whose gradients are added up per step; this adds no negatives"
    )
    chunk_size: Count | Off = Field(
        default="none",
        description="samples encoded at once by gradient caching: large batches, with all their negatives, on little "
        "memory",
    )
    chunk_norm: bool = Field(
        default=False, description="with chunk_size: allow BatchNorm, with the statistics of each chunk"
    )
    encode_views: Literal["auto", "together", "apart"] = Field(
        default="auto",
        description="both views in one pass of the encoder, with BatchNorm statistics of both, or in one each",
    )
    workers: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="threads that fetch ahead; changes no bit of the result"
    )
    checkpoint_every: Count | Auto = Field(
        default="auto", description="epochs between checkpoints (auto: about ten per run)"
    )
    checkpoint_steps: Count | Off = Field(
        default="none", description="save every so many steps, too, in the middle of an epoch or at its end"
    )
    checkpoint_at: list[Count] | Off = Field(
        default="none", description="epochs after which a checkpoint is saved that stays, such as [100, 300, 500]"
    )
    keep: Count = Field(default=2, description="number of newest checkpoints kept")
    knn_every: Count | Off = Field(
        default="none", description="epochs between kNN checks on held-out samples while training (needs labels)"
    )
    tensorboard: bool = Field(default=False, description="write TensorBoard events to RUN/tensorboard (extra)")
    wandb: bool = Field(default=False, description="log to Weights & Biases (extra)")


class TrainSettings(Settings):
    """Train an encoder by contrast."""

    data: str | None = Field(
        default=None,
        description="a named set (see `counterpoint list data`), a folder of images or tar shards, or a file: "
        ".npy, .npz, .tar, .parquet, .arrow",
    )
    recipe: str | None = Field(
        default=None,
        description="settings of a published table, see `counterpoint list recipes`, or a .yaml file of that form; "
        "whatever is given beside it wins",
    )
    method: str = Field(default="simclr", description="see `counterpoint list methods`")
    out: str | None = Field(
        default=None, description="run folder to create (default: runs/DATA-METHOD, or runs/DATA-RECIPE)"
    )
    encoder: str = Field(
        default="auto",
        description="convnet, resnet9-narrow, resnet9, resnet18, resnet50, mlp, or timm:NAME (auto: by the kind and "
        "size of data)",
    )
    stem: Literal["auto", "small", "small-padded", "small-cut", "large"] = Field(
        default="auto",
        description="of the built-in ResNets: small keeps the side of the images, padded adds two pixels to it and cut "
        "takes two, large leaves a quarter of it (auto: large above 64 px)",
    )
    initial: Literal["uniform", "normal", "normal-zero"] = Field(
        default="uniform",
        description="how kernels of the built-in ResNets are drawn: uniform as torch does, normal as torchvision, zero "
        "with residual branches that begin at 0",
    )
    init: str | None = Field(
        default=None,
        description="weights to begin with: a run folder, a file of any framework (.safetensors, .pth, .ckpt) for "
        "--encoder, or timm:NAME with --pretrained-weights",
    )
    pretrained_weights: str | None = Field(
        default=None, description="file with the weights of --init timm:NAME; nothing is ever downloaded"
    )
    epochs: Annotated[int, Field(ge=1)] | Auto = Field(default="auto", description="passes over the training samples")
    batch_size: Annotated[int, Field(ge=2)] | Auto = Field(
        default="auto",
        description="distinct samples per step; each is seen in two views",
        json_schema_extra=hint(
            "a contrastive loss needs at least one other sample to repel; common values are 128 to 1024"
        ),
    )
    temperature: Annotated[float, Field(gt=0)] | Auto = Field(
        default="auto",
        description="similarity scale of the loss",
        json_schema_extra=hint("common values are 0.1 to 0.5"),
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="fixes order, views and weights")
    source: SourceSettings = SourceSettings()
    views: ViewSettings = ViewSettings()
    projector: ProjectorSettings = ProjectorSettings()
    target: TargetSettings = TargetSettings()
    output: OutputSettings = OutputSettings()
    loss: LossSettings = LossSettings()
    optim: OptimSettings = OptimSettings()
    engine: EngineSettings = EngineSettings()
