"""Studies: what they may hold, cells that are kept, parts, and what is refused before anything is mixed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from counterpoint.core.errors import CounterpointError, DataError, RunError, UsageError
from counterpoint.core.ranks import WorkPart
from counterpoint.core.settings import SourceSettings, TrainSettings
from counterpoint.core.validation import build, dump_yaml, nest
from counterpoint.data.sources import open_source
from counterpoint.diagnostics.concepts import top_concepts
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract
from counterpoint.evaluation.trained_run import open_trained
from counterpoint.losses.build import build_loss
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.recipes import recipe_named, with_recipe
from reproductions import study_runner
from reproductions.reproduction_page import render_reproduction
from reproductions.study import SCALES, PartPlan, Study, read_study, short_hash, studies
from reproductions.study_data import SETS, StudyData, class_names_of, factors_of, prepare, training_split
from reproductions.study_measures import Measured, check_measures
from reproductions.study_pictures import picture_grids, pictures_file
from reproductions.study_result import StudyResult, cells_folder, read_result, result_file
from reproductions.study_runner import Cell, StudyPlan, StudyRun, run_study
from reproductions.study_views import as_reproduction, as_text

QUIET = Reporter(quiet=True)
SHORT: dict[str, Any] = {"encoder": "convnet", "epochs": 1, "batch_size": 64}
SMALL: dict[str, Any] = {"data": "digits", "per_class": 20, "seeds": 2, "settings": SHORT}
NCL_OVER_CL = {"first": "ncl", "second": "cl"}
TOY: dict[str, Any] = {
    "name": "toy-table1",
    "paper": "ncl2024",
    "item": "Table 0",
    "title": "A toy",
    "arms": [
        {"name": "cl", "says": "CL", "settings": {"method": "simclr"}, "printed": {"consistency": "0.1"}},
        {"name": "ncl", "says": "NCL", "settings": {"method": "ncl"}},
    ],
    "columns": {"kNN": "representation: knn", "consistency": "embedding: class_consistency"},
    "claims": [
        {**NCL_OVER_CL, "says": "NCL is more consistent", "source": "Fig. 0", "figure": "embedding: class_consistency"}
    ],
    "measures": {
        "metrics": ["knn"],
        "evaluate": {"k": 5},
        "features": {"embedding": ["class_consistency"]},
        "curves": {"embedding": ["log spectrum"]},
    },
    "small": SMALL,
    "paper_scale": SMALL,
}


def study_of(folder: Path, **changes: Any) -> Study:
    """Read the toy study with changes."""
    path = folder / "toy.yaml"
    path.write_text(dump_yaml({**TOY, **changes}))
    return read_study(path)


@pytest.fixture
def toy(tmp_path: Path) -> Study:
    return study_of(tmp_path)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace training by figures that follow from arm and seed; return the runs that were asked for."""
    runs: list[str] = []

    def train(data: str, **settings: Any) -> dict[str, Any]:
        runs.append(f"{settings['method']} {settings['seed']}")
        return settings

    def measure(run: dict[str, Any], *_: object) -> Measured:
        value = run["seed"] * 0.01 + (0.5 if run["method"] == "ncl" else 0.25)
        return Measured({"representation: knn": value, "embedding: class_consistency": value}, {"embedding: a": (1.0,)})

    monkeypatch.setattr(study_runner, "train", train)
    monkeypatch.setattr(study_runner, "measure", measure)
    return runs


def finished(study: Study, out: Path, **plan: Any) -> StudyResult:
    """Run a study to its end, and return its result."""
    result = run_study(study, StudyPlan(out, **plan), QUIET)
    assert result is not None
    return result


PART = PartPlan(per_class=4, queries_per_class=2)


def write_set(folder: Path, split: str, counts: tuple[int, ...], names: tuple[str, ...] = ("airplane", "bird")) -> None:
    """Pictures of a made set, so many of each class, three textures of a shape; without names they have no labels."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.repeat(np.arange(len(counts)), counts)
    images = np.random.default_rng(0).integers(0, 255, (len(labels), 16, 16, 3), dtype=np.uint8)
    arrays = {"images": images, "labels": np.array(names)[labels]} if names else {"images": images}
    textures = np.arange(len(labels)) % 3
    np.savez(folder / f"{split}.npz", **arrays, texture_labels=textures)  # pyright: ignore[reportArgumentType]


def plain(path: Path) -> dict[str, Any]:
    """Read a result without the fields that another machine or day would have differently."""
    told = json.loads(path.read_text())
    return {name: value for name, value in told.items() if name not in ("made", "sha256")}


@pytest.mark.parametrize("scale", SCALES)
def test_every_arm_of_every_study_can_be_trained_and_measured_as_it_says(scale: Any) -> None:
    own_studies = [study for study in studies(scale).values() if study.longer or scale != "longer"]
    assert len(own_studies) > 2
    for study in own_studies:
        claimed = [value for claim in study.claims for value in claim.model_dump().values()]
        said = [*study.columns, *study.columns.values(), *(arm.says for arm in study.arms), *claimed]
        assert "{" not in "".join(map(str, said)), study.name
        check_measures(study.measures)
        assert study.at(scale).data in SETS
        for arm in study.arms:
            assert study.data_of(arm, scale) in SETS
            fields = with_recipe(nest(study.settings_of(arm, scale)))
            checked = build(TrainSettings, fields, f"{study.name} {arm.name}")
            check_choices(checked)
            if study.measures.curvature and checked.loss.name != "auto":
                derivative = build_loss(checked.loss.name, {}, checked.loss.options).card.second_derivative
                assert not derivative.startswith("none"), f"{study.name} {arm.name}"


def test_at_the_papers_scale_a_study_measures_what_the_paper_prints() -> None:
    paper = studies("paper")
    # Table 1 of ncl2024 keeps 256 of 512 features.
    half = paper["ncl-table1"]
    assert half.columns["probe, EA half"].endswith("keeping 256 by non-negative expected activation")
    for arm in half.arms:
        assert with_recipe(nest(half.settings_of(arm, "paper")))["projector"]["features"] == 512
    # Tables 1 and 2 of alphacl2022 have columns for 100, 300 and 500 epochs; Table 3 is of the same runs' lengths.
    for name in ("alphacl-table1", "alphacl-table2", "alphacl-table3"):
        assert list(paper[name].columns) == ["100 epochs", "300 epochs", "500 epochs"]
        assert {claim.figure for claim in paper[name].claims} <= set(paper[name].columns.values())
        for arm in paper[name].arms:
            fields = with_recipe(nest(paper[name].settings_of(arm, "paper")))
            assert (fields["epochs"], list(fields["engine"]["checkpoint_at"])) == (500, [100, 300, 500])
            assert paper[name].measures_of(arm, "paper").epochs == (100, 300, 500)
    # Section 2.4 of mio2021: 100 iterations of Lanczos.
    assert {paper[name].measures.curvature["steps"] for name in ("mio-fig2", "mio-fig5", "mio-fig6")} == {100}
    # directclr2022's representation has 2048 features.
    lengths = paper["directclr-section6"]
    for arm in lengths.arms:
        d0 = with_recipe(nest(lengths.settings_of(arm, "paper")))["output"]["d0"]
        assert arm.says == f"DirectCLR, d0 = {d0} of 2048"
    # Appendix G.6 of ncl2024: one projector before and in fine-tuning.
    tuned = paper["ncl-table4-finetune"]
    projectors = [with_recipe(nest(tuned.settings_of(arm, "paper")))["projector"] for arm in tuned.arms]
    for projector in [*projectors, tuned.measures_of(tuned.arm("nce-mlp"), "paper").fine_tune["projector"]]:
        assert (projector["hidden"], projector["features"]) == (16384, 2048)


def test_an_arm_at_the_papers_scale_is_the_recipe_of_its_table() -> None:
    recipe_arms = [(study, arm) for study in studies("paper").values() for arm in study.arms if arm.recipe]
    assert len(recipe_arms) >= 60
    for study, arm in recipe_arms:
        recipe = recipe_named(arm.recipe)
        assert recipe.paper == study.paper, arm
        assert study.settings_of(arm, "paper")["recipe"] == arm.recipe
        # The set that the recipe is of: alphacl-stl10-resnet18-p2.
        assert study.data_of(arm, "paper") == recipe.name.split("-")[1].replace("tinyimagenet", "tiny-imagenet"), arm


def test_fine_tuning_is_the_studys_then_the_scales_then_the_arms() -> None:
    study, paper = (studies(scale)["ncl-table4-finetune"] for scale in ("small", "paper"))
    nce = study.arm("nce-mlp")
    own = {"method": "nonnegative-supervised", "projector": {"kind": "mlp", "hidden": "auto", "features": "auto"}}
    assert study.measures_of(nce, "small").fine_tune == {"epochs": 4, **own}
    assert paper.measures_of(paper.arm("ce"), "paper").fine_tune == {"epochs": 50, "method": "supervised"}
    # What is not fine-tuned stays so, whatever a scale says.
    table = studies()["ncl-table4"].model_copy(update={"small": study.small})
    assert table.measures_of(table.arm("ce"), "small") == table.measures


def test_the_longer_scale_is_the_small_one_with_more_training(tmp_path: Path) -> None:
    study = studies("longer")["mio-fig2"]
    small, longer = (study.settings_of(study.arm("v1"), scale) for scale in ("small", "longer"))
    assert (small["epochs"], longer["epochs"] >= 30) == (8, True)
    assert {**longer, "epochs": 8} == small
    assert study.at("longer").per_class == study.small.per_class
    assert study.claims_hash == studies()["mio-fig2"].claims_hash
    with pytest.raises(UsageError, match="toy-table1 has no longer scale; small and paper are there"):
        run_study(study_of(tmp_path), StudyPlan(tmp_path / "out", "longer"), QUIET)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_real_study_is_trained_measured_and_judged(tmp_path: Path) -> None:
    curvature = {"steps": 3, "batch_size": 16, "precision": "float32", "checkpoint": "all"}
    fine_tune = {"fine_tune": {"epochs": 1}, "fine_tune_projector": True}
    measures = {**TOY["measures"], **fine_tune, "curvature": curvature, "epochs": [1, 2]}
    small = {**SMALL, "settings": {**SHORT, "epochs": 2, "engine": {"checkpoint_at": [1, 2]}}}
    toy = study_of(tmp_path, measures=measures, small=small)
    result = finished(toy, tmp_path / "out")
    assert [(cell.arm, cell.seed) for cell in result.cells] == [("cl", 0), ("cl", 1), ("ncl", 0), ("ncl", 1)]
    ours, other = (np.array(result.of_arm(arm, "embedding: class_consistency")) for arm in ("ncl", "cl"))
    assert result.claims[0]["difference"] == pytest.approx((ours - other).mean())
    first = result.cells[0]
    assert len(first.curves["embedding: log spectrum"]) == 64
    assert 0 <= first.figures["fine-tuned: classifier"] <= 1
    weights = load_file(next(tmp_path.glob("out/**/fine-tuned/encoder.safetensors")))
    assert {name.split(".")[1] for name in weights if name.startswith("backbone")} == {"0", "1"}  # and the projector
    early, last = (first.figures[f"representation after {epoch} epochs: knn"] for epoch in (1, 2))
    assert last == first.figures["representation: knn"]
    assert early != last
    assert first.figures["curvature: largest eigenvalue"] >= max(first.curves["curvature: Ritz values"]) - 1e-3
    text = as_text(toy, result)
    for words in ("NCL is more consistent", "the paper prints", "2 seeds could tell", "digits"):
        assert words in text
    page = as_reproduction(toy, result)
    assert page.settings["claims"] == toy.claims_hash
    assert f"Of 1 claims 1 {result.claims[0]['verdict']}." in render_reproduction(page)
    # Lines: the spectra of the first and of the last checkpoint, and of the embedding.
    assert [type(panel).__name__ for panel in page.panels] == ["TablePanel"] * 2 + ["LinePanel"] * 3


@pytest.mark.thorough
def test_pictures_in_another_style_have_the_class_numbers_of_the_set_and_probes_of_their_own(tmp_path: Path) -> None:
    root, numbers = tmp_path / "root", {"train": 40, "test": 20, "cue_conflict": 30, "edges": 2}
    for split in ("train", "test"):
        write_set(root / "cifar10", split, (numbers[split],) * 2, ("ship", "cat"))
    for split in ("cue_conflict", "edges"):
        write_set(root / "texture-shape-96", split, (numbers[split],) * 3, ("bear", "cat", "boat"))
    measures = {"metrics": ["linear probe"], "elsewhere": True, "transfer": ["stylised"]}
    small = {"data": "cifar10", "queries_per_class": 20, "image_size": 8, "settings": {**SHORT, "batch_size": 32}}
    claim = {**TOY["claims"][0], "figure": "representation on stylised: linear probe"}
    study = study_of(tmp_path, measures=measures, columns={}, claims=[claim], small={**SMALL, **small})
    result = finished(study, tmp_path / "out", root=str(root))
    styled = np.load(tmp_path / "out/data/cifar10-8px/stylised.npz")
    assert styled["labels"].tolist() == [0] * 30 + [1] * 30  # cats, then boats, which are ships; no bears
    for fold in range(5):
        parts = (tmp_path / f"out/data/cifar10-8px/stylised-{split}-{fold}.npz" for split in ("train", "test"))
        train, test = map(np.load, parts)
        assert (len(train["labels"]), np.unique(test["labels"], return_counts=True)[1].tolist()) == (72, [6, 6, 6])
        assert not np.isin(train["shapes"], test["shapes"]).any()
    for protocol, num in ((" on stylised: linear probe", 90), (": linear probe on stylised", 60)):
        for share in result.of_arm("cl", f"representation{protocol}"):
            assert share == pytest.approx(round(share * num) / num)


@pytest.mark.thorough
def test_a_study_that_stopped_goes_on_and_gives_the_same_json(
    toy: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(toy, tmp_path / "whole")
    calls, measure = [], study_runner.measure

    def stopping(*arguments: Any) -> Measured:
        calls.append(arguments)
        if len(calls) == 3:  # two cells are kept, the third one is trained and not measured
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(study_runner, "measure", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_study(toy, StudyPlan(tmp_path / "stopped"), QUIET)
    assert not result_file(toy, "small", tmp_path / "stopped").exists()
    finished(toy, tmp_path / "stopped")
    assert len(calls) == 5  # the two cells that were kept are not measured again
    first, second = (plain(result_file(toy, "small", tmp_path / name)) for name in ("whole", "stopped"))
    assert first == second


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("commit", "changes", "words"),
    [
        ("bbbbbbbbbbbb", {}, r"another commit \(aaaaaaaaaaaa, this is bbbbbbbbbbbb\): cl-seed-0; remove"),
        ("aaaaaaaaaaaa", {"claims": [{**TOY["claims"][0], "than": -1.0}]}, "another claims"),
        ("aaaaaaaaaaaa", {"small": {**SMALL, "settings": {**SHORT, "epochs": 2}}}, "another plan"),
    ],
    ids=["commit", "claims", "settings"],
)
def test_cells_of_another_commit_claims_or_settings_are_refused(
    commit: str, changes: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_runner, "code_state", lambda: "aaaaaaaaaaaa")
    run_study(study_of(tmp_path), StudyPlan(tmp_path / "out", part=WorkPart(1, 4)), QUIET)
    monkeypatch.setattr(study_runner, "code_state", lambda: commit)
    with pytest.raises(RunError, match=words):
        run_study(study_of(tmp_path, **changes), StudyPlan(tmp_path / "out"), QUIET)


@pytest.mark.usefixtures("untrained")
def test_a_result_of_other_claims_is_refused(toy: Study, tmp_path: Path) -> None:
    run_study(toy, StudyPlan(tmp_path / "out"), QUIET)
    path = result_file(toy, "small", tmp_path / "out")
    assert isinstance(read_result(path, toy), StudyResult)
    harder = study_of(tmp_path, claims=[{**TOY["claims"][0], "than": 0.3}])
    with pytest.raises(RunError, match=f"other claims \\({toy.claims_hash}\\) than toy-table1 has now"):
        read_result(path, harder)
    shutil.rmtree(cells_folder(toy, "small", tmp_path / "out"))
    assert finished(harder, tmp_path / "out").claims_hash == harder.claims_hash  # as the refusal says


def test_parts_make_each_cell_once_and_the_last_one_writes_the_result(
    toy: Study, tmp_path: Path, untrained: list[str]
) -> None:
    finished(toy, tmp_path / "whole")
    del untrained[:]
    results = [run_study(toy, StudyPlan(tmp_path / "parts", part=WorkPart(number, 3)), QUIET) for number in (1, 2, 3)]
    assert sorted(untrained) == ["ncl 0", "ncl 1", "simclr 0", "simclr 1"]
    assert results[:2] == [None, None]
    assert results[2] is not None
    assert plain(result_file(toy, "small", tmp_path / "parts")) == plain(result_file(toy, "small", tmp_path / "whole"))


@pytest.mark.usefixtures("untrained")
def test_hours_add_seeds_to_the_arms_of_open_claims_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"ncl": [0.0, 1.0, -1.0, 0.5, 0.5] * 4, "simclr": [0.0] * 20}

    def measure(run: dict[str, Any], *_: object) -> Measured:
        value = values[run["method"]][run["seed"]]
        return Measured({"representation: knn": value, "embedding: class_consistency": value}, {})

    monkeypatch.setattr(study_runner, "measure", measure)
    open_, idle = TOY["claims"][0], {**TOY["arms"][0], "name": "idle", "says": "an arm of no claim"}
    study = study_of(tmp_path, arms=[*TOY["arms"], idle], claims=[open_])
    result = finished(study, tmp_path / "out", hours=1.0)
    assert result.seed_rule == "sequential"
    assert [len(result.of_arm(name, "representation: knn")) for name in ("ncl", "cl", "idle")] == [20, 20, 3]
    assert result.claims[0]["num_seeds"] == 20


@pytest.mark.usefixtures("untrained")
def test_another_first_seed_is_another_result(toy: Study, tmp_path: Path) -> None:
    for hours, seeds in ((None, (100, 101)), (1.0, (100, 101, 102))):
        out = tmp_path / str(hours)
        assert finished(toy, out, first_seed=100, hours=hours).seeds == seeds
        with pytest.raises(RunError, match="has seeds from 100, not from 0; choose another --out"):
            run_study(toy, StudyPlan(out, hours=hours), QUIET)


def test_hours_end_between_cells_and_the_same_command_goes_on(
    toy: Study, tmp_path: Path, untrained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**6, 600))  # ten minutes pass between two looks at it
    monkeypatch.setattr(study_runner.time, "monotonic", lambda: float(next(clock)))
    out = tmp_path / "out"
    assert run_study(toy, StudyPlan(out, hours=0.5), QUIET) is None
    begun = len(untrained)
    assert 0 < begun < 6
    finished(toy, out, hours=100.0)
    assert len(untrained) == len(set(untrained)) == 6  # three seeds tell a claim whose seeds all have one difference
    with pytest.raises(RunError, match="sequential seeds, not fixed"):
        run_study(toy, StudyPlan(out), QUIET)
    with pytest.raises(UsageError, match="leave out the number of seeds"):
        run_study(toy, StudyPlan(out, seeds=5, hours=1.0), QUIET)


def test_a_part_of_a_set_has_the_first_samples_of_each_class_its_name_and_the_official_queries(tmp_path: Path) -> None:
    write_set(tmp_path / "cifar10-pack", "train", (5, 6))
    write_set(tmp_path / "cifar10-pack", "test", (3, 3))
    data = prepare("cifar10", PART, str(tmp_path), tmp_path / "out")
    train, test = np.load(data.train), np.load(str(data.test))
    all_train = np.load(tmp_path / "cifar10-pack" / "train.npz")
    assert np.bincount(train["labels"]).tolist() == [4, 4]
    assert np.bincount(test["labels"]).tolist() == [2, 2]
    np.testing.assert_array_equal(train["images"], all_train["images"][[0, 1, 2, 3, 5, 6, 7, 8]])
    source = open_source(str(data.test), SourceSettings(), progress=QUIET.bar)
    assert source.class_names == ("0", "1")
    assert class_names_of(data, source) == ("airplane", "bird")
    next((tmp_path / "out" / "data").glob("*test*-classes.json")).unlink()  # of a part that was made before
    assert class_names_of(data, source) == ("0", "1")


def test_a_part_of_generated_data_keeps_its_factors(tmp_path: Path) -> None:
    # Table 6 of NCL compares the MIG of the part.
    plan = build(PartPlan, {"per_class": 12, "image_size": 16}, "plan")
    part = prepare("dsprites-rendered", plan, None, tmp_path)
    source = open_source(part.train, SourceSettings(), progress=Reporter(quiet=True).bar)
    factors = factors_of(part)
    assert factors.shape == (36, 5)
    assert source.labels is not None
    assert factors[:, 0].tolist() == source.labels.tolist()
    assert (factors.amax(0) > 0).all()


def test_the_training_split_is_found_from_any_folder_and_other_data_stay(tmp_path: Path) -> None:
    pack = tmp_path / "root" / "cifar10-pack"
    pack.parent.mkdir()
    for split in ("train", "test"):
        write_set(pack, split, (2, 2))
    for data in (pack.parent, pack):
        assert training_split("cifar10", str(data)) == (str(pack / "train.npz"), {})
    (tmp_path / "published" / "cifar-10-batches-py").mkdir(parents=True)
    root = str(tmp_path / "published")
    assert training_split("cifar10", root) == ("cifar10", {"root": root})
    for name in ("cars", "train"):  # a folder of pictures, one class of them trains
        (tmp_path / "vehicles" / name).mkdir(parents=True)
    for data in ("digits", str(pack / "train.npz"), str(tmp_path / "vehicles"), "nowhere"):
        assert training_split("cifar10", data) == (data, {})


def test_data_that_lack_what_a_study_needs_are_refused_in_one_line(tmp_path: Path) -> None:
    def refused(kind: type[CounterpointError], words: str, root: Path | None, name: str = "cifar10") -> None:
        with pytest.raises(kind, match=words) as caught:
            prepare(name, PART, None if root is None else str(root), tmp_path / "out")
        assert "\n" not in str(caught.value)

    refused(UsageError, "--data ROOT", None)
    refused(UsageError, "unknown data set 'cifar11'", tmp_path, "cifar11")
    refused(DataError, "cifar10", tmp_path)
    refused(DataError, "caltech101 has no split train", tmp_path, "caltech101")
    write_set(tmp_path / "cifar10-pack", "train", (5, 6), names=())
    write_set(tmp_path / "cifar10-pack", "test", (3, 1))
    refused(DataError, "no labels", tmp_path)
    write_set(tmp_path / "cifar10-pack", "train", (5, 6))
    refused(DataError, "1 samples of class bird; the study needs 2", tmp_path)


def test_other_sets_of_a_table_have_arms_and_claims_at_the_scales_that_have_them() -> None:
    small, paper = studies("small")["mio-table2"], studies("paper")["mio-table2"]
    assert (len(small.arms), len(paper.arms)) == (18, 36)
    assert (len(small.claims), len(paper.claims)) == (11, 21)
    arm = paper.arm("v1-tiny-imagenet")
    assert (arm.recipe, arm.printed) == ("mio-tinyimagenet-resnet18-v1", {"Tiny ImageNet, 200-NN": "27.59"})
    assert paper.data_of(arm, "paper") == "tiny-imagenet"
    claim = next(claim for claim in paper.claims if claim.says == "MIOv3 beats DCL, STL-10")
    # Table 2: 77.49 - 74.46
    assert (claim.first, claim.second, claim.source) == ("v3-stl10", "dcl-stl10", "Table 2, +3.03 points")
    own = paper.only(["cifar10"], "paper")
    assert (len(own.arms), len(own.claims), own.claims_hash) == (9, 6, small.only(["cifar10"], "small").claims_hash)
    with pytest.raises(UsageError, match=r"unknown data set .stl.*stl10"):
        paper.only(["stl"], "paper")


def test_mistakes_in_a_study_are_told(tmp_path: Path) -> None:
    for words, changes in (
        ("the arm nobody", {"claims": [{**TOY["claims"][0], "second": "nobody"}]}),
        ("two arms are called cl", {"arms": [TOY["arms"][0]] * 2}),
        ("margin > 0", {"claims": [{**TOY["claims"][0], "relation": "within"}]}),
        ("colums", {"colums": {}}),
    ):
        with pytest.raises(UsageError, match=words):
            study_of(tmp_path, **changes)
    fixed_weights = {**TOY["arms"][0], "settings": {"method": "simclr", "loss": {"name": "dclw"}}}
    curved = study_of(tmp_path, arms=[fixed_weights, TOY["arms"][1]], measures={"curvature": {"steps": 4}})
    with pytest.raises(UsageError, match="DCLW has no Hessian"):
        run_study(curved, StudyPlan(tmp_path / "out"), QUIET)
    with pytest.raises(UsageError, match="'knnn'"):
        check_measures(study_of(tmp_path, measures={"metrics": ["knnn"]}).measures)


def test_a_figure_that_a_claim_needs_and_nobody_measures_ends_the_study_at_its_first_cell(
    tmp_path: Path, untrained: list[str]
) -> None:
    study = study_of(tmp_path, claims=[{**TOY["claims"][0], "figure": "embedding: classifier"}])
    with pytest.raises(UsageError, match="cl: unknown figure 'embedding: classifier'"):
        run_study(study, StudyPlan(tmp_path / "out"), QUIET)
    assert untrained == ["simclr 0"]


# --- pictures of what activates each dimension

PICTURES = {"pictures": {"layer": "embedding", "dimensions": 3, "pictures": 4}}


def test_pictures_change_neither_the_hash_of_claims_nor_that_of_the_plan(tmp_path: Path) -> None:
    plain = study_of(tmp_path)
    with_pictures = study_of(tmp_path, measures={**TOY["measures"], **PICTURES})
    other = study_of(tmp_path, measures={**TOY["measures"], "features": {"embedding": ["sparsity"]}})
    cell = Cell(plain.arms[0], 0, StudyData("train.npz", {}, "test.npz"), {"method": "simclr"})
    first, second, third = (
        StudyRun(study, "small", tmp_path, [cell], "", QUIET).plan_hash(cell) for study in (plain, with_pictures, other)
    )
    # As cells that were made before there were pictures have it: of every field that there was then.
    measures = {name: value for name, value in with_pictures.measures.model_dump().items() if name != "pictures"}
    assert first == second == short_hash([{"method": "simclr"}, ["train.npz", "test.npz"], measures])
    assert third != first
    assert plain.claims_hash == with_pictures.claims_hash


@pytest.mark.thorough
def test_the_page_of_a_study_shows_what_activates_each_dimension(tmp_path: Path) -> None:
    study = study_of(tmp_path, measures={"features": {"embedding": ["class_consistency"]}, **PICTURES})
    out = tmp_path / "out"
    result = finished(study, out)
    grids = picture_grids(study, "small", out)
    assert [(grid.title, len(grid.rows), grid.missing) for grid in grids] == [("CL", 3, ""), ("NCL", 3, "")]
    page = str(render_reproduction(as_reproduction(study, result, grids)))
    assert page.count('class="pixelated"') == sum(len(row.addresses) for grid in grids for row in grid.rows) > 12
    assert "data:image" not in result_file(study, "small", out).read_text()
    # The rows are the concepts of the queries.
    run = next((out / "runs").glob("*/seed-0"))
    arm = "cl" if "simclr" in (run / "resolved.yaml").read_text() else "ncl"
    subject = open_trained(str(run), reporter=QUIET)
    z_QD = extract(subject.encoder, subject.source).embedding[subject.split.held_out]
    assert subject.source.labels is not None
    labels_Q = subject.source.labels[subject.split.held_out]
    rows = grids[0 if arm == "cl" else 1].rows
    for row, concept in zip(rows, top_concepts(z_QD, num_concepts=3, num_samples=4), strict=True):
        assert row.name == f"dimension {concept.dim}"
        assert list(row.classes) == [str(int(labels_Q[place])) for place in concept.top]

    # What is missing is taken from the run folder; without it the page says how to get it.
    file = pictures_file(study, "small", out, arm)
    before = file.read_bytes()
    file.unlink()
    finished(study, out)
    assert file.read_bytes() == before
    file.unlink()
    (run / "encoder.safetensors").unlink()
    result = finished(study, out)
    assert not file.exists()
    page = str(render_reproduction(as_reproduction(study, result, picture_grids(study, "small", out))))
    assert f"The run folder of {arm}, first seed," in page
    assert "Remove its cell from toy-table1-small/cells" in page
