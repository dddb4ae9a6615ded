"""Recipes: found by name, laid under what was asked for, and recorded as the reason of what they set."""

from pathlib import Path

import pytest
import yaml

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, merge
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs import recipes
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.recipes import all_recipes, reasons_of, recipe_named, with_recipe

MIO = "mio-cifar10-resnet18"
SMALL = {"encoder": "convnet", "stem": "auto", "epochs": 1, "batch_size": 64}


@pytest.mark.parametrize("name", all_recipes())
def test_each_recipe_is_a_config_whose_settings_all_have_an_effect(name: str) -> None:
    recipe = recipe_named(name)
    settings = build(TrainSettings, recipe.nested, name)
    assert not recipe.settings.keys() & {"data", "out", "recipe", "init", "source.root", "source.labels"}  # the user's
    check_choices(settings)  # refuses unknown names, and settings that change nothing
    assert settings.method in METHODS
    # The order of files and arms is that of reading: bibliography key, file, arm.
    assert recipe.follows
    assert recipe.reproduces
    assert all(line.startswith(("Table", "Figure", "Section", "Appendix", "Tables")) for line in recipe.reproduces)
    assert len(recipe.line) < 200


def test_what_is_asked_for_wins_over_the_recipe() -> None:
    asked = with_recipe({"recipe": MIO, "epochs": 5, "optim": {"momentum": 0.5}, "loss": {"options": {"a": 1}}})
    recipe = recipe_named(MIO).nested
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
    plain = cp.train("digits", out=tmp_path / "plain", quiet=True, **merge(recipe_named(MIO).nested, SMALL))
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


def test_a_file_extends_another_and_an_arm_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    below, above = tmp_path / "below.yaml", tmp_path / "above.yaml"
    head = "paper: mio2021\nsummary: 'my data, my encoder: {}'\nreproduces: [Table 2]\nsettings: {{epochs: {}}}\n"
    rest = "follows: nobody\ndepartures: [One.]\narms: {v1: {settings: {seed: 1}}}\n"
    below.write_text(head.format("MIOv3", 5) + rest)
    above.write_text(head.format("longer", 9) + "extends: below\ndepartures: [Two.]\narms: {v1: {summary: first}}\n")
    monkeypatch.setattr(recipes, "_files", lambda: [above, below])
    longer, arm = recipe_named("above"), recipe_named("above-v1")
    assert (longer.settings, longer.departures, longer.follows) == ({"epochs": 9}, ("One.", "Two."), "nobody")
    assert (arm.settings, arm.summary) == ({"epochs": 9, "seed": 1}, "my data, my encoder: first")


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "recipes", "--json"]) == 0
    listed = yaml.safe_load(capsys.readouterr().out)["recipes"]
    assert [each["name"] for each in listed] == list(all_recipes())
    assert main(["list", "recipes", MIO]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == yaml.safe_load(yaml.safe_dump(recipe_named(MIO).nested))
    assert main(["list", "encoders", MIO]) == 2
