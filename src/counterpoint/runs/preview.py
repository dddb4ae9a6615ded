"""Draw originals beside their views, which show what the encoder learns to ignore."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from counterpoint.core.array_layout import to_bytes, to_unit_float
from counterpoint.core.counter_random import PURPOSE_SPLIT
from counterpoint.core.errors import UsageError
from counterpoint.core.files import check_new_file, write_atomically
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.data.order import random_order
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import plan_views
from counterpoint.engine.progress import Reporter
from counterpoint.runs.resolve import Resolution, resolve_views
from counterpoint.runs.user_inputs import UserInputs, open_user_data, with_named_parts

TILE = 96  # pixels per picture
MOST_TILES = 64  # along each side: a sheet of 43 megapixels, which viewers still open
GAP, HEADER = 6, 22
PAPER, INK = (255, 255, 255), (40, 40, 40)


@usual_modes()
def preview(
    data: Any,
    *,
    out: str | Path = "preview.png",
    num_samples: int = 8,
    num_views: int = 6,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Path:
    """Draw a sheet: one row per sample, the original first, then its views as epoch 0, 1, ... would see them.

    Args:
        data: images (anything ``train`` takes).
        out: PNG file to write.
        num_samples: number of rows, at most 64.
        num_views: number of columns of views, at most 64.
        overwrite: replace ``out`` if it exists.
        quiet: show no progress.
        settings: any field of ``TrainSettings``; ``views`` (which may be a function of your own), ``source`` and
            ``seed`` matter here.

    Raises:
        UsageError: the data are vectors, or a setting is wrong.
        RunError: ``out`` exists, or its folder does not.
    """
    for name, number in (("--samples", num_samples), ("--columns", num_views)):
        if not 1 <= number <= MOST_TILES:
            raise UsageError(f"{name} must be between 1 and {MOST_TILES}, got {number}; 8 x 6 is common")
    path = Path(out)
    check_new_file(path, [".png"], overwrite=overwrite)
    user_settings, objects = UserInputs.of_call(data, settings)
    user_settings.pop("loss", None)  # nothing of it is drawn
    user_settings, objects = with_named_parts(user_settings, objects)
    train_settings = build(TrainSettings, user_settings, "settings")
    reporter = Reporter(quiet=quiet)
    source = open_user_data(train_settings, objects, reporter)
    if source.kind != "images":
        raise UsageError(
            "preview draws images; for vectors, views add --views.noise and drop --views.dropout of the features"
        )
    rows = random_order(train_settings.seed, 0, len(source), purpose=PURPOSE_SPLIT)[:num_samples]
    resolution = resolve_views(Resolution(train_settings), source, own=objects.views)
    plan = plan_views(resolution.settings.views) if objects.views is None else objects.views
    drawer = ViewDrawer(plan, torch.zeros(source.shape[0]), torch.ones(source.shape[0]), resolution.settings.seed)
    sheet = _sheet(source.store.fetch(rows.tolist()), rows, drawer, num_views)
    write_atomically(path, sheet.save)
    why = resolution.reasons.get("views.preset", "as asked")
    reporter.say(f"views of preset {resolution.settings.views.preset} ({why}): {path}")
    return path


def _sheet(samples: Tensor, rows: Tensor, drawer: ViewDrawer, num_views: int) -> Image.Image:
    width, height = (num_views + 1) * (TILE + GAP) + 2 * GAP, len(rows) * (TILE + GAP) + GAP + HEADER
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for column in range(num_views + 1):
        left = GAP + column * (TILE + GAP) + (GAP if column else 0)
        # The originals take column 0; then epoch 0 first view, second view, epoch 1 first view, ...
        epoch, view = divmod(column - 1, 2)
        drawn = drawer.draw(samples, rows, epoch, torch.full((len(rows),), view)) if column else to_unit_float(samples)
        pen.text((left, 5), f"epoch {epoch + 1}, view {view + 1}" if column else "original", fill=INK)
        for row, pixels in enumerate(to_bytes(drawn).permute(0, 2, 3, 1).numpy()):
            # PIL takes grey pictures as (h, w) only.
            image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
            scale = TILE / max(image.size)
            size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            method = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS  # small: pixels stay visible
            sheet.paste(image.resize(size, method), (left, HEADER + row * (TILE + GAP)))
    return sheet
