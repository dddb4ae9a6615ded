"""Recipes: found by name, laid under what was asked for, and recorded as the reason of what they set."""

from pathlib import Path

import pytest
import yaml

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, merge
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.recipes import all_recipes, reasons_of, recipe_named, with_recipe

MIO = "mio-cifar10-resnet18"
SMALL = {"encoder": "convnet", "stem": "auto", "epochs": 1, "batch_size": 64}
OWN = """\
version: 1
paper: mio2021
summary: "my data, my encoder: MIOv3 for longer"
extends: mio-cifar10-resnet18
reproduces: [Table 2]
departures: [It trains for 500 epochs.]
settings: {epochs: 500}
arms:
  v1: {}
  warm: {summary: at another temperature, settings: {temperature: 0.5}}
"""


@pytest.mark.parametrize("name", all_recipes())
def test_each_recipe_is_a_config_whose_settings_all_have_an_effect(name: str) -> None:
    recipe = recipe_named(name)
    settings = build(TrainSettings, recipe.asked, name)
    check_choices(settings)  # refuses unknown names, and settings that change nothing
    assert settings.method in METHODS
    # The order of files and arms is that of reading: bibliography key, file, arm.
    assert recipe.follows
    assert recipe.reproduces
    assert all(line.startswith(("Table", "Figure", "Section", "Appendix", "Tables")) for line in recipe.reproduces)
    assert len(recipe.line) < 200


def test_what_is_asked_for_wins_over_the_recipe() -> None:
    asked = with_recipe({"recipe": MIO, "epochs": 5, "optim": {"momentum": 0.5}, "loss": {"options": {"a": 1}}})
    recipe = recipe_named(MIO).asked
    assert asked == merge(
        recipe, {"recipe": MIO, "epochs": 5, "optim": {"momentum": 0.5}, "loss": {"options": {"a": 1}}}
    )
    assert asked["optim"]["learning_rate"] == 0.06
    assert with_recipe({"method": "ncl"}) == {"method": "ncl"}


def test_fewer_epochs_have_a_warm_up_in_the_same_proportion() -> None:
    name = "ncl-cifar10-resnet18"
    assert (recipe_named(name).settings["epochs"], recipe_named(name).settings["optim.warmup_epochs"]) == (200, 10.0)
    assert with_recipe({"recipe": name, "epochs": 5})["optim"]["warmup_epochs"] == 0.25
    assert with_recipe({"recipe": name, "epochs": 400})["optim"]["warmup_epochs"] == 10.0
    assert with_recipe({"recipe": name, "epochs": 5, "optim": {"warmup_epochs": 2}})["optim"]["warmup_epochs"] == 2
    settings = build(TrainSettings, with_recipe({"recipe": name, "epochs": 5}), name)
    reasons = reasons_of(settings)
    assert reasons["optim.warmup_epochs"] == f"{reasons['optim.momentum']}, in proportion to the epochs"


def test_a_run_says_recipe_as_the_reason_of_what_it_set(tmp_path: Path) -> None:
    run = cp.train("digits", recipe=MIO, out=tmp_path / "run", quiet=True, **SMALL)
    resolved = yaml.safe_load((run.path / "resolved.yaml").read_text())
    asked = yaml.safe_load((run.path / "config.yaml").read_text())
    assert asked["recipe"] == resolved["recipe"] == MIO
    assert (resolved["temperature"], resolved["epochs"]) == (0.2, 1)
    from_recipe = {
        path for path, why in resolved["reasons"].items() if why.startswith(f"recipe {MIO} (mio2021, Table 2")
    }
    assert from_recipe == set(recipe_named(MIO).settings) - SMALL.keys()
    text = (run.path / "config.yaml").read_text()
    assert all(f"# departs: {departure}" in text for departure in recipe_named(MIO).departures)


@pytest.mark.thorough
def test_a_recipe_and_its_settings_written_out_train_the_same_weights(tmp_path: Path) -> None:
    recipe = cp.train("digits", recipe=MIO, out=tmp_path / "recipe", quiet=True, **SMALL)
    plain = cp.train("digits", out=tmp_path / "plain", quiet=True, **merge(recipe_named(MIO).asked, SMALL))
    weights = [(run.path / "encoder.safetensors").read_bytes() for run in (recipe, plain)]
    assert weights[0] == weights[1]


@pytest.mark.thorough
def test_checkpoints_of_named_epochs_stay(tmp_path: Path) -> None:
    lasting = {**SMALL, "epochs": 5, "engine.checkpoint_at": [2, 3, 9], "engine.keep": 1, "engine.checkpoint_every": 4}
    run = cp.train("digits", recipe=MIO, out=tmp_path / "run", quiet=True, **lasting)
    per_epoch = 1797 // 64  # all of the digits: a recipe holds nothing out
    steps = sorted(int(path.name.removeprefix("step-")) for path in (run.path / "checkpoints").glob("step-*"))
    assert steps == [2 * per_epoch, 3 * per_epoch, 5 * per_epoch]


@pytest.mark.thorough
def test_flags_and_set_win_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    small = ["--encoder", "convnet", "--stem", "auto", "--batch-size", "64"]
    words = ["train", "--recipe", MIO, "--data", "digits", *small, "--set", "epochs=1", "--set", "optim.name=adam"]
    assert main([*words, "--optim.momentum", "0.9", "--out", str(out), "-q"]) == 0
    resolved = yaml.safe_load((out / "resolved.yaml").read_text())
    assert (resolved["epochs"], resolved["optim"]["name"]) == (1, "adam")
    assert "epochs" not in resolved["reasons"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--recipe", "mio-cifar10-resnet81"],
            "unknown recipe 'mio-cifar10-resnet81'; did you mean 'mio-cifar10-resnet18'?",
        ),
        (["--recipe", MIO, "--set", "epochs"], "--set takes NAME=VALUE"),
        (["--recipe", MIO, "--set", "epoch=3"], "unknown setting 'epoch'; did you mean 'epochs'?"),
        (["--recipe", "gone.yaml"], "gone.yaml does not exist"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_recipe_of_ones_own_extends_another(tmp_path: Path) -> None:
    path = tmp_path / "longer.yaml"
    path.write_text(OWN)
    longer = recipe_named(str(path))
    assert longer.settings == {**recipe_named(MIO).settings, "epochs": 500}
    assert longer.departures == (*recipe_named(MIO).departures, "It trains for 500 epochs.")
    assert longer.follows == recipe_named(MIO).follows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("version: 1", "version: 2"), "is of form 2, and this version of Counterpoint reads form 1"),
        (("version: 1\n", ""), "is of form unknown"),
        (("epochs: 500", "epoch: 500"), "unknown setting 'epoch'; did you mean 'epochs'?"),
        (("epochs: 500", "data: cifar10"), "data is for the user to say; leave it out"),
        (("settings:", "setting:"), "unknown setting 'setting'; did you mean 'settings'?"),
        (("{}", "{setting: 1}"), "arm v1: unknown setting 'setting'; did you mean 'settings'?"),
        (("resnet18", "resnet18s"), "did you mean 'mio-cifar10-resnet18'?"),
    ],
)
def test_a_recipe_file_with_a_mistake_is_refused(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(OWN.replace(*change, 1))
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        recipe_named(str(path))


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "recipes", "--json"]) == 0
    listed = yaml.safe_load(capsys.readouterr().out)["recipes"]
    assert [each["name"] for each in listed] == list(all_recipes())
    assert main(["list", "recipes", MIO]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == yaml.safe_load(yaml.safe_dump(recipe_named(MIO).asked))
    assert main(["list", "encoders", MIO]) == 2
