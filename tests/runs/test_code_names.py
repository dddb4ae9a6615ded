"""A name of code in a file, in the environment or in a text of Python is never imported: only a flag's is."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError
from counterpoint.core.files import is_unchanged, read_sealed, run_named_in, sealed_text, with_run, write_sealed
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields, merge, nest

NAME = "planted:make"
PATHS = [path for path, _ in leaf_fields(TrainSettings)]
SMALL = {"data": "samples.npy", "epochs": 1, "batch_size": 16, "encoder": "mlp", "seed": 1}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module of which any import is seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "planted.py").write_text("def make(**options):\n    raise RuntimeError('called')\n", encoding="utf-8")
    np.save("samples.npy", np.random.default_rng(0).normal(size=(64, 12)).astype("float32"))
    yield tmp_path
    sys.modules.pop("planted", None)


def write_settings(path: str, values: Mapping[str, Any]) -> None:
    Path(path).write_text(yaml.safe_dump(dict(values)), encoding="utf-8")


def planted(path: str) -> list[Mapping[str, Any]]:
    """Settings with the name at a path: as the value, and within it where it may be a mapping or a list."""
    shapes: list[Any] = [NAME, {"rule": NAME, "command": NAME}, [NAME, NAME]]
    return [merge({"method": "alpha-cl"} if path == "loss.options" else {}, nest({path: shape})) for shape in shapes]


@pytest.mark.usefixtures("workplace")
def test_no_setting_of_a_file_imports_what_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    codes = set()
    for verb in ("train --out run --overwrite -q", "preview -q --overwrite", "fine-tune run -q --overwrite"):
        for path in PATHS:
            for settings in planted(path):
                write_settings("config.yaml", merge(SMALL if not verb.startswith("fine") else {}, settings))
                codes.add(main([*verb.split(), "--config", "config.yaml"]))
                assert "planted" not in sys.modules, (verb, path)
    assert codes <= {0, 2}  # 0: such as the name of a folder to write to
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("path", ["loss.name", "views.preset"])
def test_a_name_counts_from_a_flag_alone(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_settings("config.yaml", merge(SMALL, nest({path: NAME})))
    assert main(["train", "--config", "config.yaml", "--out", "run"]) == 2
    assert "planted" not in sys.modules
    assert f"--{path} {NAME}" in capsys.readouterr().err  # the flag to repeat
    with pytest.raises(RuntimeError, match="called"):
        main(["train", "--data", "samples.npy", "--out", "run", "--config", "config.yaml", f"--{path}", NAME])


@pytest.mark.usefixtures("workplace")
def test_a_text_of_python_names_no_code() -> None:
    for settings in ({"loss": {"name": NAME}}, {"views": {"preset": NAME}}, {"loss.name": NAME}, {"encoder": NAME}):
        with pytest.raises(CounterpointError):
            cp.train(**{**SMALL, "quiet": True, "out": "run", **settings})
    for encoders in ((NAME, {}), ("mlp", {"baselines": (NAME,)})):
        with pytest.raises(CounterpointError):
            cp.evaluate(encoders[0], data="samples.npy", labels=np.arange(64) % 2, quiet=True, **encoders[1])
    assert "planted" not in sys.modules


def plant(folder: Path) -> None:
    """Put the name where a run folder has texts, and seal each file anew, as one who knows the format can."""
    for name in ("config.yaml", "resolved.yaml"):
        text = (folder / name).read_text(encoding="utf-8")
        plain = text.rpartition("# sha256 ")[0] if "# sha256 " in text else text
        values = merge(yaml.safe_load(plain), {"loss": {"name": NAME}, "views": {"preset": NAME}})
        again = with_run(yaml.safe_dump(values), run_named_in(plain))
        (folder / name).write_text(sealed_text(again) if plain != text else again, encoding="utf-8")
        assert is_unchanged((folder / name).read_text(encoding="utf-8"), must_be_sealed=plain != text)
    record = {"name": NAME, "sha256": ""}
    write_sealed(folder / "run.json", {**read_sealed(folder / "run.json"), "own_loss": record, "own_views": record})
    write_sealed(folder / "encoder.json", {**read_sealed(folder / "encoder.json"), "architecture": NAME})


VERBS = (
    "resume RUN", "train --resume --out RUN --data samples.npy", "evaluate RUN",
    "diagnose RUN", "spectrum RUN --steps 2", "verify RUN", "report RUN", "embed RUN --out rows.npz", "search RUN 1",
    "export RUN --out made", "fine-tune RUN", "train --config RUN/config.yaml --out again", "compare RUN RUN", "runs .",
    "train --config RUN/resolved.yaml --out again", "train --init RUN --data samples.npy --out again",
)  # fmt: skip


def test_no_file_of_a_run_and_no_variable_imports_what_it_names(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cp.train(**SMALL, out="sound", quiet=True)
    for path in PATHS:
        monkeypatch.setenv(f"COUNTERPOINT_{path.upper().replace('.', '_')}", NAME)
    for words in VERBS:
        shutil.rmtree(workplace / "RUN", ignore_errors=True)
        shutil.copytree("sound", "RUN")
        plant(workplace / "RUN")
        assert main(words.split()) in (0, 1, 2, 3), words
        assert "planted" not in sys.modules, words
    said = capsys.readouterr().err
    assert "Traceback" not in said
