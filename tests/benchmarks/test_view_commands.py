"""The benchmark of views times nothing that differs from torchvision."""

import pytest
import torch
import view_checks
import view_peers
import views
from view_peers import Work

from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import PRESETS
from tolerances import assert_estimate

pytestmark = pytest.mark.thorough


def rows_of(text: str, header: str) -> dict[str, list[str]]:
    lines = text[text.index(header) :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_what_differs_is_not_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision", reason="torchvision (extra `vision`) is not installed")
    monkeypatch.setattr(view_checks, "solarize", lambda images: 1 - images)
    monkeypatch.setattr(views, "take_turns", lambda *_: pytest.fail("timed"))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    assert views.main(["--images", "4", "--threads", "1"]) == 1
    output = capsys.readouterr()
    assert float(rows_of(output.out + "\n\n", "| operation |")["solarize"][0]) > 100
    assert "differs from torchvision's by more than 1 level: not timed" in output.err


def test_ours_and_torchvisions_recipe_have_the_same_law() -> None:
    pytest.importorskip("torchvision", reason="torchvision (extra `vision`) is not installed")
    num_images, repeats = 64, 16
    work = Work(views.make_images(num_images), num_images, 1)
    drawer = ViewDrawer(PRESETS["lightly-cifar"], torch.tensor(view_peers.MEAN), torch.tensor(view_peers.STD), 0)
    ids = torch.arange(num_images)
    ours = torch.cat([drawer.two_views(work.images_B3HW, ids, epoch)[0] for epoch in range(repeats)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        recipe = view_peers.torchvision_recipe(work, is_tensor=False)
        theirs = torch.stack([recipe(picture) for _ in range(repeats) for picture in work.pictures])
    for statistic in (lambda x: x.mean((1, 2, 3)), lambda x: x.std((1, 2, 3)), lambda x: x.std(1).mean((1, 2))):
        mine, other = statistic(ours).double(), statistic(theirs).double()
        standard_error = float((mine.var() / len(mine) + other.var() / len(other)).sqrt())
        assert_estimate(float(mine.mean()), float(other.mean()), standard_error)
