"""diagnose() on a run's own data, on other data, and on what embed writes; what is none of these is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import DataError, UsageError
from counterpoint.evaluation.vector_table import WRITERS, Table, read_table


def draw(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(40, 5)).astype(np.float32)


LABELS = np.arange(40) % 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """One epoch on vectors."""
    out = str(tmp_path_factory.mktemp("inspection") / "run")
    return cp.train(
        data=draw(0), labels=LABELS, epochs=1, batch_size=16, projector={"features": 4}, quiet=True, out=out
    )


@pytest.mark.parametrize("given", [{}, {"labels": LABELS}])
@pytest.mark.sampled(2)
def test_the_array_of_a_run_is_known_again(run: cp.Run, given: dict[str, Any]) -> None:
    own = cp.diagnose(run, quiet=True)
    run.folder.findings.unlink()
    again = cp.diagnose(run.path if given else run, data=draw(0), quiet=True, **given)
    assert again.to_dict() == own.to_dict()
    assert run.folder.findings.exists()


def test_other_data_leave_the_record_of_the_run_alone(run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    cp.diagnose(run, quiet=True)
    before = [path.read_bytes() for path in (run.folder.findings, run.folder.arrays)]
    other = cp.diagnose(run.path, data=draw(1))
    assert other.places["embedding"].class_consistency is None
    assert [path.read_bytes() for path in (run.folder.findings, run.folder.arrays)] == before
    assert "findings.json stays as it is" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.sampled(3)
def test_what_embed_writes_is_read_back(run: cp.Run, tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    table = cp.embed(run, out=tmp_path / f"table{suffix}", quiet=True)
    expected = cp.diagnose(table.vectors, labels=LABELS)
    assert expected.places["embedding"].class_consistency is not None
    for subject in (table, str(tmp_path / f"table{suffix}")):
        assert cp.diagnose(subject).to_dict() == expected.to_dict()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_rows_of_a_file_that_are_no_numbers_are_named_and_left_out(tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    path, z = tmp_path / f"z{suffix}", draw(0)
    z[3, 2], z[20, 0] = np.nan, np.inf
    if suffix == ".npy":
        np.save(path, z)
    else:
        WRITERS[suffix](Table(tuple(f"s{place}" for place in range(40)), z, None), path)
    found = cp.diagnose(path, quiet=True)
    odd = next(each for each in found.findings if each.name == "not-finite")
    assert ("3, 20" if suffix == ".npy" else "s3, s20") in odd.text
    assert found.places["embedding"].num_samples == 38
    with pytest.raises(DataError, match="sample 3"):
        read_table(path)


def test_rows_without_a_label_count_for_no_class(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    labels = ["", *("'=cat" if number else "dog" for number in LABELS[1:])]
    rows = [
        f"{number},{label},{','.join(map(repr, row))}"
        for number, (label, row) in enumerate(zip(labels, draw(0).tolist(), strict=True))
    ]
    path.write_text("name,label,v0,v1,v2,v3,v4\n" + "\n".join(rows) + "\n")
    named = cp.diagnose(path)
    assert {concept["top_class"] for concept in named.concepts} <= {"=cat", "dog", None}
    known = cp.diagnose(draw(0)[1:], labels=LABELS[1:]).places["embedding"].class_consistency
    assert named.places["embedding"].class_consistency == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "x,y\n1,2\n"),
        ("b.csv", ""),
        ("c.csv", "name,label,v0\na,b,c\n"),
        ("d.csv", "name,label,v0\n"),
        ("e.npz", "x"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name) as refused:
        cp.diagnose(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_what_is_no_subject_of_diagnose_is_refused() -> None:
    for wrong in (5, None):
        with pytest.raises(UsageError, match=rf"diagnose takes a run, .* got {type(wrong).__name__}; "):
            cp.diagnose(wrong)
    with pytest.raises(UsageError, match="checkpoint="):
        cp.diagnose(draw(0), checkpoint="3")
