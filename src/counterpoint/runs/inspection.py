"""Diagnose a run, or features from anywhere: gather features, measure them, and judge what was measured."""

# N samples, D features

from pathlib import Path
from typing import Any

from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_files import as_path, is_file_or_shards
from counterpoint.core.validation import build
from counterpoint.data.formats.arrow_and_csv import is_columns
from counterpoint.data.formats.labels import Labels
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD, check_threshold
from counterpoint.diagnostics.evidence import Concept, Evidence
from counterpoint.diagnostics.findings import Findings, draw_findings
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.load_subject import Samples, is_array, is_encoder, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject, open_samples
from counterpoint.evaluation.vector_table import WRITERS, Table, columns_table, is_table, read_table
from counterpoint.runs.feature_evidence import evidence_of_features, given_features
from counterpoint.runs.run_evidence import NUM_VIEW_SAMPLES, gather_evidence
from counterpoint.runs.sample_collection import described_concepts, keep_for_page


@usual_modes()
def diagnose(
    subject: Run | Table | str | Path | Any,
    *,
    data: Any = None,
    labels: Any = None,
    views: Any = None,
    threshold: float = SPARSITY_THRESHOLD,
    quiet: bool = False,
    **look: Any,
) -> Findings:
    """Say whether a representation is good, and why not.

    Args:
        subject: a run or its folder (``Run(path, encoder=module)`` if it was trained with your own module); an encoder
            from elsewhere, as ``evaluate`` takes it; features (n, d) as an array or tensor, from anywhere; or what
            ``embed`` returns or writes (.npz, .csv, .parquet; also a bare .npy), labels included.
        data: other samples for a run (anything ``train`` takes), or the array that it was trained on; for features,
            the samples that they were computed from, in their order; to compare the features with their raw input.
        labels: one class per sample; for a run's own data they are known already.
        views: features of another view of the same samples, if features are given, so that alignment can be measured.
        threshold: value above which a feature of a unit-length vector counts as active.
        quiet: show no progress.
        look: settings: which data of a run or an encoder are used (``split``, ``classes``, ``root``, ``image_size``,
            as in ``source``); ``checkpoint`` (a step), ``device`` and ``cache``; and for an encoder from elsewhere
            ``weights``, ``mean`` and ``std``.

    Returns:
        The findings, worst first; for a run's own samples also written to ``findings.json``, ``arrays.npz`` and
        ``collection.npz``.

    Raises:
        DataError: features or labels that cannot be used.
        RunError: not a run, or nothing was trained yet.
        UsageError: something else than a run or features.
    """
    check_threshold(threshold)
    settings, reporter = build(LookSettings, look, "diagnose"), Reporter(quiet=quiet)
    # A path may be a run, which is a folder, or features, which are a file or a folder of shards.
    if isinstance(subject, str | Path) and is_file_or_shards(subject) and not is_encoder(subject):
        if not is_table(path := as_path(subject)):
            raise UsageError(
                f"{path} is neither a run folder nor a file of features: .npy, or {', '.join(WRITERS)} as "
                "`counterpoint embed` writes them"
            )
        table = columns_table(path, settings, reporter) if is_columns(path) else None
        subject = read_table(path, only_finite=False) if table is None else table
        if table is not None:
            look = {name: value for name, value in look.items() if name not in ("label_column", "drop_columns")}
    if isinstance(subject, Run | str | Path) or is_encoder(subject):
        if views is not None:
            raise UsageError("views= goes with features; a run draws its own views")
        judged = open_subject(subject, Samples(data, labels), settings, reporter)
        judged = one_checkpoint(judged, settings.checkpoint)
        return _diagnose_subject(judged, settings, threshold, reporter)
    part = settings.part if data is not None else {}
    if others := look.keys() - part.keys():
        raise UsageError(f"{min(others)}= goes with a run; only features were given")
    if not is_array(subject):
        raise UsageError(
            f"diagnose takes a run, its folder, or features (n, d), got {type(subject).__name__}; of a module or an "
            "encoder give the features that it returns for some samples"
        )
    source = None if data is None else open_samples(data, part, None, reporter)
    features = given_features(subject, labels, views, source)
    if features.labels is not None and (num_unknown := int((features.labels.numbers < 0).sum())):
        reporter.say(f"{num_unknown:,} samples without a label take no part in what labels tell")
    evidence = evidence_of_features(features, threshold)
    concepts = described_concepts(features.z_ND, features.labels, features.names, threshold)
    return _complete_findings(evidence, features.z_ND, concepts, threshold)


def _diagnose_subject(judged: Subject, settings: LookSettings, threshold: float, reporter: Reporter) -> Findings:
    source = judged.source
    if not judged.has_views:
        reporter.say(
            "the run's views are your own and not available: no alignment is measured; pass Run(path, views=...)"
        )
    with reporter.bar("diagnosing", 3) as advance:
        gathered = gather_evidence(judged, threshold, checkpoint=settings.checkpoint, cache=settings.cache)
        evidence, embedding_ND = gathered.evidence, gathered.embedding_ND
        advance()
        labels = None if source.labels is None else Labels(source.labels, source.class_names)
        concepts = described_concepts(embedding_ND, labels, source.sample_names, threshold)
        advance()
        findings = _complete_findings(evidence, embedding_ND, concepts, threshold)
        # A record of other samples, labels or weights would represent the run in its report.
        if judged.folder is not None and judged.is_own_record:
            keep_for_page(judged.folder, source, findings, gathered)
        advance()
    if judged.folder is not None and not judged.is_own_record:
        name = judged.folder.findings.name
        content = "own samples and labels" if settings.checkpoint is None else "last state"
        reporter.say(f"{name} stays as it is: it is about the run's {content}, these are not")
    return findings


def _complete_findings(
    evidence: Evidence,
    z_ND: Tensor,
    concepts: tuple[Concept, ...],
    threshold: float,
) -> Findings:
    settings = {
        "sparsity_threshold": threshold,
        "num_samples": len(z_ND),
        "num_view_samples": min(len(z_ND), NUM_VIEW_SAMPLES),
    }
    return draw_findings(evidence).model_copy(update={"concepts": concepts, "settings": settings})
