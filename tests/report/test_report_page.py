"""Whole pages: every scenario renders, nothing leaks or injects, the same runs give the same bytes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_scan import scan
from run_folders import ATTACK, Samples, attack_everything, edit_json, sparse_embedding, toy_samples, write_run

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.run_lock import lock_run
from counterpoint.report import page as page_module
from counterpoint.report.reporting import report
from counterpoint.report.sections import all_sections

SECTION_NAMES = [
    section.name for section in all_sections() if section.name != "curvature"
]  # no run here has a spectrum


def spaced(text: str) -> str:
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_one_run_goes_into_its_folder(make_run):
    folder = make_run()
    assert report(folder) == folder / "report.html"
    found = scan(folder / "report.html")
    assert [attributes["id"] for attributes in found.named("section")] == SECTION_NAMES


def test_commands_name_the_folder_as_one_types_it(make_run, tmp_path, monkeypatch):
    folder = make_run("runs/my run")
    edit_json(folder / "findings.json", lambda c: c["findings"][0].update(confirm="see counterpoint diagnose RUN"))
    monkeypatch.chdir(tmp_path)
    for named in (folder, Path("runs/my run")):
        page = report(named).read_text(encoding="utf-8")
        assert "<code>counterpoint diagnose &#x27;runs/my run&#x27;</code>" in page
        assert "diagnose my run" not in page


def test_several_runs_go_into_their_common_folder(make_run, tmp_path):
    assert report([make_run("a/one"), make_run("b/two")]) == tmp_path / "report.html"


def test_numbers_on_the_page_are_those_of_the_files(make_run):
    folder = make_run()
    text = spaced(scan(report(folder)).text)
    stored = json.loads((folder / "findings.json").read_text())
    assert stored["verdict"]["sentence"] in text
    for finding in stored["findings"]:
        assert finding["title"] in text
        assert finding["text"] in text
        assert finding["remedy"] in text
    for shown in (
        "98.3 %",
        "96.4 to 99.2 %",
        "354 of 360",
        "123,456",
        "adamw default",
        "2026-11-20 10:00 UTC",
        "bad.jpg",
    ):
        assert shown in text
    assert f"{100 * stored['places']['embedding']['sparsity']:.1f} %" in text


def test_same_runs_give_same_bytes(make_run, tmp_path):
    runs = [make_run("a", kind="colour"), make_run("b", method="simclr")]
    first = report(runs, out=tmp_path / "1.html").read_bytes()
    assert report(runs, out=tmp_path / "2.html").read_bytes() == first


def test_six_runs(make_run):
    runs = [make_run(f"run {place}", method=("ncl", "simclr")[place % 2], num_epochs=2 + place) for place in range(6)]
    found = scan(report(runs))
    assert all(run.name in found.text for run in runs)


@pytest.mark.parametrize(
    "options",
    [
        {"num_classes": 1},
        {"num_classes": 200, "num_samples": 400},
        {"num_samples": 3, "num_classes": 2},
        {"kind": "vectors"},
        {"kind": "colour"},
        {"num_epochs": 1},
    ],
    ids=str,
)
def test_odd_data(make_run, options):
    assert "Run card" in scan(report(make_run(**options))).text


def test_without_labels(tmp_path):
    toy = toy_samples()
    unlabelled = Samples(toy.images, None, toy.names, [])
    found = scan(report(write_run(tmp_path / "run", unlabelled, sparse_embedding(toy))))
    assert "counterpoint evaluate run" in found.text


def test_without_anything_but_run_json(tmp_path):
    folder = tmp_path / "early"
    folder.mkdir()
    (folder / "run.json").write_text('{"format": 1, "status": "running", "method": "ncl"}')
    (folder / "resolved.yaml").write_text("epochs: 40\n")
    with lock_run(folder):
        assert "still training: 0 of 40 epochs so far" in scan(report(folder)).text
    found = scan(report(folder))  # nobody holds it: its process was killed
    assert "still training" not in found.text
    assert "interrupted" in found.text
    for verb in ("diagnose", "evaluate"):
        assert f"counterpoint {verb} early" in found.text


@pytest.mark.parametrize(
    "file", ["evaluation.json", "findings.json", "arrays.npz", "metrics.jsonl", "resolved.yaml", "config.yaml"]
)
@pytest.mark.sampled(4)
def test_any_file_may_be_missing(make_run, file):
    runs = [make_run("whole"), make_run("partial", method="simclr")]
    (runs[1] / file).unlink()
    assert "partial" in scan(report(runs)).text
    assert "partial" in scan(report(runs[1])).text


def test_null_everywhere(make_run):
    folder = make_run()

    def blank(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: blank(child) for key, child in value.items()}
        return [blank(child) for child in value] if isinstance(value, list) else None

    for file in ("findings.json", "evaluation.json"):
        edit_json(folder / file, blank)
    edit_json(folder / "run.json", lambda card: {**blank(card), "format": 1, "status": "finished"})
    lines = [json.dumps(blank(json.loads(line))) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    assert "nan" not in scan(report(folder)).text.lower().split()


@pytest.mark.parametrize("num_runs", [1, 2])
@pytest.mark.parametrize("kind", ["grey", "vectors"])
def test_nothing_injects(make_run, num_runs, kind):
    name = ATTACK.replace("/", "")  # a folder's name cannot hold a slash
    folders = [make_run(name, kind=kind), make_run(name + "2", kind=kind)][:num_runs]
    for folder in folders:
        attack_everything(folder)
    found = scan(report(folders))
    assert not [image for image in found.named("img") if not (image["src"] or "").startswith("data:")]
    assert ATTACK in found.text
    assert name in found.text


def test_no_absolute_path_reaches_the_page(make_run, tmp_path):
    folder = make_run()
    secret = "/vol/ada/secret folder/photos"

    def plant(card):
        card.update(data=secret, command=f"counterpoint train '{secret}' --out={tmp_path}/x")
        card.update(skipped=[{"name": f"{secret}/a.jpg", "reason": f"cannot open '{secret}/a.jpg'"}])

    edit_json(folder / "run.json", plant)
    (folder / "resolved.yaml").write_text(f"data: {secret}\nout: {folder}\nreasons:\n  data: found in {secret}\n")
    page = report(folder).read_text()
    assert str(tmp_path) not in page
    assert "ada" not in page
    assert "…/photos" in page


def test_only_a_report_is_replaced(make_run, tmp_path):
    folder = make_run()
    target = tmp_path / "page.html"
    target.write_text("my own notes")
    with pytest.raises(RunError, match="not a report"):
        report(folder, out=target)
    with pytest.raises(RunError, match="not a report"):
        report(folder, out=folder / "run.json")
    with pytest.raises(RunError, match="is a folder"):
        report(folder, out=tmp_path)
    target.unlink()
    assert report(folder, out=target) == report(folder, out=str(target)) == target


def test_unusable_requests_are_refused(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(UsageError, match="at least one"):
        report([])
    with pytest.raises(UsageError, match="at most 6"):
        report([folder] * 7)
    with pytest.raises(UsageError, match="twice"):
        report([folder, folder / "."])
    with pytest.raises(RunError, match="absent"):
        report(tmp_path / "absent")
    with pytest.raises(RunError, match="absent"):
        report(folder, out=tmp_path / "absent" / "report.html")


def test_different_data_is_pointed_out(make_run):
    runs = [make_run("a"), make_run("b")]
    edit_json(runs[1] / "run.json", lambda card: card.update(data="photos", data_fingerprint="ff"))
    assert "different data (digits and photos)" in scan(report(runs)).text


def test_a_protocol_is_stated_with_the_settings_of_its_first_row(make_run):
    folder = make_run()
    edit_json(folder / "evaluation.json", lambda c: c["rows"][-1]["settings"].update(components=64))
    text = scan(report(folder)).text
    assert "vote on each query, weighted by exp(similarity / 0.1)" in text
    assert "names each query; l2 0.001." in text


@pytest.mark.parametrize(
    ("how", "caption"),
    [
        ("20 % of each class, held out of training", "Accuracy on held-out queries"),
        ("", "Accuracy on the queries"),
    ],
)
def test_only_held_out_queries_are_called_so(make_run, how, caption):
    folder = make_run()
    edit_json(folder / "evaluation.json", lambda c: c["split"].update(how=how, num_unlabelled=7))
    text = scan(report(folder)).text
    assert caption in text
    assert ("held-out" in text) == ("held out of training" in how)
    assert "7 samples without a label took no part." in text


@pytest.mark.parametrize("has_own", [True, False])
def test_evaluations_on_other_data_are_listed(make_run, has_own):
    folder = make_run()
    own = json.loads((folder / "evaluation.json").read_text())
    assert "not the run’s own" not in scan(report(folder)).text
    (folder / "evaluations").mkdir()
    for name, accuracy in (("b", 0.625), ("a", 0.75)):
        rows = [{"features": "representation", "protocol": "knn", "accuracy": accuracy, "low": 0.5, "high": 0.875}]
        other = {"split": {**own["split"], "source": f"<{name}>", "num_queries": 321}, "rows": rows}
        (folder / "evaluations" / f"{name}.json").write_text(json.dumps(other))
    if not has_own:
        (folder / "evaluation.json").unlink()
    found = scan(report(folder, bare=True))
    table = spaced(found.text).partition("not the run’s own")[2]
    assert re.search(r"<a>\s*321\s*75.0 %\s*50.0 to 87.5 %\s*<b>\s*321\s*62.5 %", table)


def test_settings_that_differ_are_counted(make_run):
    found = scan(report([make_run("a"), make_run("b", method="simclr")]))
    assert "2 settings differ between the runs." in found.text


def test_pages_are_written_without_torch():
    code = "import sys, counterpoint.report.reporting, counterpoint.report.audit_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_text_keeps_its_contrast_on_every_ground():
    """WCAG 2: 4.5 to 1 for text, 3 to 1 for marks, in both themes."""
    style = (Path(page_module.__file__).parent / "style.css").read_text()
    pairs = dict(re.findall(r"--(\w+): light-dark\(([^)]+)\);", style))
    single = dict(re.findall(r"--(\w+): (#\w{6});", style))
    for theme in (0, 1):
        colours = {name: value.split(", ")[theme] for name, value in pairs.items()} | single
        for ground in ("paper", "sheet"):
            for name in ("ink", "soft", "link", "good", "note", "warning", "severe"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground, theme)
            for name in ("neutral", "run1", "run2", "run3", "run4", "run5", "run6"):
                assert contrast(colours[name], colours[ground]) >= 3.0, (name, ground, theme)
        assert contrast(colours["ink"], colours["faint"]) >= 4.5


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
