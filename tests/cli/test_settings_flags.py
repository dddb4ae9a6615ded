"""Settings from flags and from YAML: one meaning for both, flags above the file, and mistakes by name."""

from pathlib import Path
from typing import Any, get_args

import pytest

from counterpoint.cli.arguments import build_parser, read_words
from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS
from counterpoint.core.errors import GONE, UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, expectation, leaf_fields, nest

FIELDS = dict(leaf_fields(TrainSettings))


def asked(*words: str, config: Path | None = None) -> dict[str, Any]:
    _, settings = read_words("train", [*words, *(["--config", str(config)] if config else [])])
    return settings


def refusal(*words: str, config: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        asked(*words, config=config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def example_of(path: str) -> tuple[str, Any]:
    """A legal value of a setting: as it is typed, and as it is meant."""
    words = expectation(FIELDS[path])
    if path == "recipe":
        return "ncl-cifar10-resnet18", "ncl-cifar10-resnet18"
    if "pair" in words:
        return "0.3,0.4", [0.3, 0.4]
    if FIELDS[path].annotation in (str, str | None):
        return "some text", "some text"
    if "|" in words:
        choices = [value for option in get_args(FIELDS[path].annotation) for value in (get_args(option) or (option,))]
        return str(choices[-1]), choices[-1]
    if "mapping" in words:
        return "{margin: 0.5}", {"margin": 0.5}
    if "list" in words:
        return "[7, 3]", [7, 3]
    if "true or false" in words:
        return "true", True
    number = 8 if "whole" in words else 1.0 if ">= 1" in words else 0.25
    return str(number), number


# --- flags


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.sampled(2)
def test_every_setting_can_be_given_by_its_flag(path: str) -> None:
    text, value = example_of(path)
    flag = f"--{path.replace('_', '-')}"
    for words in ([flag, text], [f"{flag}={text}"]):
        settings = asked(*words)
        assert settings == nest({path: value})
        build(TrainSettings, settings, "test")


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if field.default == "auto"])
def test_auto_may_be_said(path: str) -> None:
    assert asked(f"--{path.replace('_', '-')}", "auto") == nest({path: "auto"})


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0e-3", ".001", "1E-3"])
def test_numbers_may_be_written_in_any_way(text: str, tmp_path: Path) -> None:
    assert asked("--optim.learning-rate", text) == {"optim": {"learning_rate": 0.001}}
    config = yaml_file(tmp_path, f"optim:\n  learning_rate: {text}\n")
    assert asked(config=config) == {"optim": {"learning_rate": 0.001}}


@pytest.mark.parametrize("text", ["0.2,1", "0.2, 1", "[0.2, 1.0]", "[0.2,1]"])
def test_pairs_may_be_written_in_any_way(text: str) -> None:
    assert asked("--views.crop-scale", text) == {"views": {"crop_scale": [0.2, 1.0]}}


@pytest.mark.parametrize("text", ["007", "1e3", "true", "null", "a: b", "[x]", "~"])
def test_text_stays_as_it_was_typed(text: str) -> None:
    assert asked("--data", text, "--out", text, "--encoder", text) == {"data": text, "out": text, "encoder": text}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--temperature", "warm"], "got 'warm'"),
        (["--temperature", ".nan"], "temperature"),
        (["--views.flip", "1.5"], "views.flip"),
        (["--views.crop-scale", "1,2,3"], "views.crop_scale"),
        (["--optim.momentum", "[1"], "optim.momentum"),
    ],
    ids=" ".join,
)
def test_a_value_out_of_range_is_refused_with_its_name(words: list[str], complaint: str) -> None:
    message = refusal(*words)
    assert message.startswith("command line: ")
    assert complaint in message


@pytest.mark.parametrize(
    "words", [["--set", "workers=3"], ["--workers", "3"], ["--workers", "2", "--set", "workers=3"]]
)
def test_a_rare_setting_of_a_verb_has_no_flag_and_is_set(words: list[str]) -> None:
    (flags,) = read_words("evaluate", ["runs/a", "--engine", "ray", *words, "--set", "source.split=test"])
    assert (flags.workers, flags.split) == (3, "test")
    with pytest.raises(UsageError, match=r"command line: workers"):
        read_words("evaluate", ["runs/a", "--engine", "ray", "--set", "workers=0"])


def test_the_flags_of_all_verbs_fit_into_one_head() -> None:
    flags = [action for verb in VERBS for action in build_parser(verb)._actions if action.option_strings]
    assert sum(action.dest != "help" for action in flags) <= 250


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("--epohcs", "'--epochs'"),
        ("--epoch", "'--epochs'"),
        ("--learning-rate", "'--optim.learning-rate'"),
        ("--crop-scale", "'--views.crop-scale'"),
        ("--view.flip", "'--views.flip'"),
        ("--overwrit", "'--overwrite'"),
    ],
)
def test_an_unknown_flag_gets_the_nearest_one(word: str, suggestion: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser("train").parse_strictly([word, "3"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"counterpoint train: error: unknown flag {word}")
    assert f"did you mean {suggestion}?" in said
    assert said.count("\n") == 1


# --- YAML


def test_a_file_and_flags_meet_and_the_flags_win(tmp_path: Path) -> None:
    config = yaml_file(tmp_path, "data: digits\nepochs: 30\noptim:\n  name: sgd\n  momentum: 0.5\nviews.flip: 0.1\n")
    settings = asked("--epochs", "3", "--optim.momentum", "0.8", config=config)
    assert settings == {
        "data": "digits", "epochs": 3, "optim": {"name": "sgd", "momentum": 0.8}, "views": {"flip": 0.1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("epohcs: 3", "'epochs'"),
        ("temperature: '0.5'", "got '0.5'"),
        ("epochs: !!python/object/apply:os.system ['true']", "YAML"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, text: str, complaint: str) -> None:
    config = yaml_file(tmp_path, text)
    message = refusal(config=config)
    assert message.startswith(str(config))
    assert complaint in message


def test_a_mistake_on_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    config = yaml_file(tmp_path, "epochs: 3")
    assert refusal("--epochs", "0", config=config).startswith("command line: epochs")


@pytest.mark.parametrize("path", [name for name in GONE if name.split(".")[0] in ("engine", "optim")])
def test_a_removed_setting_is_answered_with_its_replacement(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--data", "digits", f"--{path.replace('_', '-')}", "1"])
    assert GONE[path] in capsys.readouterr().err


def test_a_removed_setting_of_a_config_that_changed_nothing_is_passed_over(tmp_path: Path) -> None:
    assert "optim" not in asked(config=yaml_file(tmp_path, "engine: {sync_norm: true, keep: 3}"))
    assert GONE["engine.accumulate"] in refusal(config=yaml_file(tmp_path, "engine: {accumulate: 2}"))
