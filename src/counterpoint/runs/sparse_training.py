"""Train a sparse code on features and those of views: reconstruct at k and at 4k, agree, and leave no unit silent."""

# N samples, B of a batch, D features, E draws, H units

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from counterpoint.core.errors import DataError, TrainingError, UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.engine.optimisers import build_optimizer, build_schedule, set_learning_rate
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import VIEW_EPOCH, extract
from counterpoint.evaluation.features import check_finite as check_rows
from counterpoint.evaluation.subject import view_drawer
from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.supervised import SupCon
from counterpoint.nn.encoders import IDENTITY
from counterpoint.nn.heads import SparseCode, keep_largest
from counterpoint.nn.layer_outputs import REPRESENTATION
from counterpoint.runs.assembly import Assembled

# wen2025's released code has 1/8, 1/32 and 1. With 1 the code at k = 16 is a point of kNN behind, with 0.1 that at 8.
WIDE, AUXILIARY, CONTRAST = 1 / 8, 1 / 32, 0.3
WIDER = 4  # times k, of the second reconstruction
DEAD_AFTER = 10  # steps without a sample, from which on a unit counts as dead in training
MOST_REVIVED = 64  # dead units that reconstruct a sample's residual
BALANCE = 0.02  # of the features' deviation, by which a shift rises in a step while its unit has no sample
ROUNDING = 1e-12  # of the largest variance, up to which a direction counts as having none
ROOT = 1 / 4  # power of its variance by which a direction is divided: 0 leaves features as they are, 1/2 whitens them
MEMORY = 0.98  # of a unit's share of samples from step to step
NUM_DRAWS = 2  # of the views of each picture, encoded before training
MOST_FITTED = 2048  # samples that say how long the first codes are
BALANCED_SHARE = 0.95  # of the steps; the last ones train the code as it is

Views = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def features_of(assembled: Assembled, dims: int, reporter: Reporter) -> Tensor:
    """Encode all samples into features (n, d).

    Raises:
        UsageError: the code has fewer units than there are features.
        DataError: all features are the same.
    """
    source, width = assembled.source, assembled.encoder.card.width
    if dims < width:
        raise UsageError(
            f"dims must be at least the width of the features, {width}, got {dims}: a sparse code of fewer units than "
            "features says less than truncation; 4 times the width is usual"
        )
    with reporter.bar(f"encoding {len(source):,} samples", -(-len(source) // 128)) as advance:
        x_ND = extract(assembled.encoder, source, [REPRESENTATION], advance=advance).representation
    # If all features are equal but for rounding, directions are noise.
    if not bool((x_ND.std(dim=0) > 1e-6 * x_ND.abs().amax(dim=0).clamp(min=1e-30)).any()):
        raise DataError(
            f"all {len(x_ND):,} samples of {source.name} have the same features; no code can tell them apart"
        )
    return x_ND


def views_of(assembled: Assembled, width: int, reporter: Reporter) -> Views:
    """Return a function that gives features of two views: of pictures drawn before, of vectors drawn in each epoch."""
    encoder, source, positions = assembled.encoder, assembled.source, assembled.part.positions
    drawer = view_drawer(assembled.settings, encoder.card, assembled.inputs.views)

    def encode_views(rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        ids = positions[rows]
        views = drawer.two_views(source.store.fetch(ids.tolist()), ids, epoch)
        with torch.no_grad():
            first, second = (encoder.backbone(view) for view in views)
        for each in (first, second):
            check_rows({"features": each.numpy()}, ids, source)
        return first, second

    if source.kind == "vectors" and encoder.card.architecture == IDENTITY:
        return encode_views
    parts = torch.arange(len(positions)).split(256)
    encoded_E2ND = torch.empty(NUM_DRAWS, 2, len(positions), width)
    with reporter.bar(f"encoding {2 * NUM_DRAWS} views of each sample", NUM_DRAWS * len(parts)) as advance:
        for draw in range(NUM_DRAWS):
            for rows in parts:
                encoded_E2ND[draw, 0, rows], encoded_E2ND[draw, 1, rows] = encode_views(rows, VIEW_EPOCH + 1 + draw)
                advance()
    return lambda rows, epoch: (encoded_E2ND[epoch % NUM_DRAWS, 0, rows], encoded_E2ND[epoch % NUM_DRAWS, 1, rows])


def train_code(
    code: SparseCode,
    x_ND: Tensor,
    labels_N: Tensor | None,
    views: Views,
    settings: TrainSettings,
    sizes: tuple[int, ...],
) -> Iterator[float]:
    r"""Train a code in place, and yield the mean loss of each epoch.

    .. math:: L = \frac{1}{|K|} \sum_{k \in K} |x - \hat x_k|^2 + L_{\text{contrast}}(z_\kappa, z'_\kappa)
        + \tfrac18 |x - \hat x_{4k}|^2 + \tfrac1{32} |e - \hat e|^2 / |e|^2

    with the mean square over samples and directions, kappa each k of K in turn, and e the residual that dead units
    reconstruct. Differs from wen2025 in four parts. Principal directions are divided by the root of their deviation,
    since a few large ones have nearly all of the error, and neighbours differ in the others, too. Units begin at
    samples, so that none begins where there are no data. The two codes of a pair are of two views; those of the
    released code are equal, which pulls nothing together. And the shift of a unit rises while fewer samples choose it
    than k / H, and falls while more do.

    Source: wen2025, the loss of its released code for pictures; the balance is that of wang2024, there of experts.

    Args:
        code: the code to train; its units begin at samples.
        x_ND: features of the training samples.
        labels_N: class numbers, if samples of one class are pairs; a sample without one (-1) is a class of its own.
        views: function that returns features of two views of samples, by their rows and the epoch.
        settings: temperature of the contrast, epochs, batch size, optimiser and seed, filled in.
        sizes: values of k that are trained, ascending.

    Raises:
        TrainingError: a loss that is not finite.
    """
    generator, num_samples = torch.Generator().manual_seed(settings.seed), len(x_ND)
    epochs, batch_size = int(settings.epochs), int(settings.batch_size)
    metric = _Metric(x_ND)
    x_ND = metric.of(x_ND)
    rows_H = torch.cat(
        [torch.randperm(num_samples, generator=generator) for _ in range(-(-len(code.shift_H) // num_samples))]
    )
    code.begin_at(x_ND[rows_H[: len(code.shift_H)]], torch.zeros_like(code.centre_D))
    with torch.no_grad():  # k units that begin near a sample would together give k times its length
        first_ND = x_ND[rows_H[:MOST_FITTED]]
        all_NH = code.activations(first_ND)
        rebuilt = [keep_largest(all_NH, k) @ code.decoder_HD for k in sizes]
        products = sum(float((each * (first_ND - code.centre_D)).sum()) for each in rebuilt)
        code.decoder_HD.mul_(products / max(sum(float(each.square().sum()) for each in rebuilt), 1e-30))
    steps = _CodeSteps(code, labels_N, settings, sizes)
    num_batches = num_samples // batch_size
    schedule = build_schedule(settings.optim, num_epochs=epochs, batches_per_epoch=num_batches)
    for epoch in range(1, epochs + 1):
        total = 0.0
        order_N = torch.randperm(num_samples, generator=generator)[: num_batches * batch_size]
        for place, rows_B in enumerate(order_N.split(batch_size)):
            step = (epoch - 1) * num_batches + place
            set_learning_rate(steps.optimizer, schedule(step))
            batch = torch.stack([x_ND[rows_B], *(metric.of(view_BD) for view_BD in views(rows_B, epoch))])
            total += steps.take(batch, rows_B, step, step / schedule.num_steps)
        yield total / num_batches
    metric.fold_into(code)


class _Metric:
    """Features whose principal directions are divided by the root of their deviation, of mean square 1."""

    def __init__(self, x_ND: Tensor) -> None:
        self.mean_D = x_ND.mean(dim=0)
        centred_ND = (x_ND - self.mean_D).double()
        variance_D, axes_DD = torch.linalg.eigh(centred_ND.T @ centred_ND / len(x_ND))
        self.scale = float(variance_D.clamp(min=0).mean().sqrt())
        root_D = variance_D.clamp(min=0).pow(ROOT)
        has_variance_D = variance_D > ROUNDING * variance_D[-1]
        length = root_D[has_variance_D].square().mean().sqrt() * has_variance_D.double().mean().sqrt()
        self.into_DD = ((axes_DD * torch.where(has_variance_D, 1 / (root_D * length), 0.0)) @ axes_DD.T).float()
        self.back_DD = ((axes_DD * torch.where(has_variance_D, root_D * length, 0.0)) @ axes_DD.T).float()

    def of(self, x_BD: Tensor) -> Tensor:
        """Features in this metric, without their mean."""
        return (x_BD - self.mean_D) @ self.into_DD

    @torch.no_grad()
    def fold_into(self, code: SparseCode) -> None:
        """Let a code of such features take them as they are; its values grow in proportion to them."""
        code.centre_D.copy_(self.mean_D + code.centre_D @ self.back_DD)
        code.encoder_HD.copy_(self.scale * code.encoder_HD @ self.into_DD)
        code.shift_H.mul_(self.scale)
        code.decoder_HD.copy_(code.decoder_HD @ self.back_DD / self.scale)


class _CodeSteps:
    def __init__(
        self, code: SparseCode, labels_N: Tensor | None, settings: TrainSettings, sizes: tuple[int, ...]
    ) -> None:
        self.code, self.sizes = code, sizes
        self.optimizer = build_optimizer(code, settings.optim)
        self.labels_N = None if labels_N is None else own_classes(labels_N)
        contrast = InfoNCE if labels_N is None else SupCon
        self.contrast = contrast(float(settings.temperature))
        self.target = sizes[0] / len(code.shift_H)
        self.load_H = torch.full_like(code.shift_H, self.target)
        self.idle_H = torch.zeros_like(code.shift_H)  # steps

    def take(self, batch_3BD: Tensor, rows_B: Tensor, step: int, progress: float) -> float:
        code, sizes, size = self.code, self.sizes, len(rows_B)
        x_MD = batch_3BD.flatten(0, 1)
        all_MH = code.activations(x_MD)
        # Descending, so that the first k are the code at k.
        values_MW, units_MW = all_MH.topk(min(WIDER * sizes[-1], all_MH.shape[1]), dim=1)
        wide_error, *errors = (
            (code.decode_entries(values_MW[:, :k], units_MW[:, :k]) - x_MD).square().mean()
            for k in (values_MW.shape[1], *sizes)
        )
        z_MH, least_MH = (
            torch.zeros_like(all_MH).scatter(1, units_MW[:, :k], values_MW[:, :k])
            for k in (sizes[step % len(sizes)], sizes[0])
        )
        labels = () if self.labels_N is None else (self.labels_N[rows_B],)
        contrast_loss = self.contrast(z_MH[size : 2 * size], z_MH[2 * size :], *labels)
        loss = WIDE * wide_error + sum(errors) / len(sizes) + CONTRAST * contrast_loss
        loss = loss + AUXILIARY * self._revival(all_MH, least_MH, x_MD)
        if not bool(loss.isfinite()):
            raise TrainingError(f"the loss is {loss.item()}; lower --optim.learning-rate, or look for extreme features")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self._balance((least_MH[:size].detach() > 0).float().mean(dim=0), progress)
        return float(loss.detach())

    def _revival(self, all_MH: Tensor, z_MH: Tensor, x_MD: Tensor) -> Tensor:
        """Error of the dead units on the residual, over its size; it has a gradient for units without a sample."""
        is_dead_H = self.idle_H > DEAD_AFTER
        if not is_dead_H.any():
            return x_MD.new_zeros(())
        residual_MD = (x_MD - self.code.decode(z_MH)).detach()
        revived_MH = keep_largest(all_MH * is_dead_H, min(MOST_REVIVED, int(is_dead_H.sum())))
        error = (revived_MH @ self.code.decoder_HD - residual_MD).square().mean()
        return error / residual_MD.square().mean().clamp(min=torch.finfo(torch.float32).tiny)

    @torch.no_grad()
    def _balance(self, share_H: Tensor, progress: float) -> None:
        """Raise the shift of units with few samples, lower that of units with many."""
        self.load_H.lerp_(share_H, 1 - MEMORY)
        self.idle_H = torch.where(share_H > 0, 0.0, self.idle_H + 1)
        if progress < BALANCED_SHARE:
            lack_H = ((self.target - self.load_H) / self.target).clamp(-1, 1)
            self.code.shift_H.add_(lack_H, alpha=BALANCE * min(1.0, 2 * (1 - progress)))


def own_classes(labels_N: Tensor) -> Tensor:
    """Labels in which each sample without one is a class of its own.

    >>> own_classes(torch.tensor([1, -1, 0, -1])).tolist()
    [1, 2, 0, 3]
    """
    own_N = int(labels_N.max()) + (labels_N < 0).long().cumsum(0)
    return torch.where(labels_N < 0, own_N, labels_N)
