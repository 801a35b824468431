"""The label-free veto beside the dev veto, in studies of two real machines."""

from __future__ import annotations

import pytest
from real_tables import real_table

import daco
from daco.experiments.labelfree import select_label_free
from daco.experiments.prereg import document_hash, freeze
from daco.experiments.study_tables import write_json
from daco.experiments.verification import verify

DEGENERATE = "ldn-diff-K16"
VETOES = ("paper", "dev", "faults", "both")


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Bearing as development machine, fan as evaluation machine, under each veto."""
    folder = tmp_path_factory.mktemp("run")
    tables = real_table("bearing"), real_table("fan")
    return {veto: daco.study(*tables, out=folder, veto=veto, workers=1) for veto in VETOES}


def test_the_papers_choice_detects_nothing_and_the_study_warns(studies):
    """On the bearing the degenerate configuration scores 61.4; on the fan 52.9."""
    selection = studies["paper"].selection
    assert selection["chosen"]["config"] == DEGENERATE
    assert selection["chosen"]["eval_omega"] == pytest.approx(52.9, abs=0.05)
    assert DEGENERATE not in selection["veto"]["removed"]
    (warning,) = selection["warnings"]
    assert warning.startswith(f"{DEGENERATE} is excluded by the label-free veto")
    assert selection["label_free_veto"]["chosen_passes"] is False


@pytest.mark.parametrize("veto", ["dev", "faults", "both"])
def test_the_default_stays_where_it_is_as_good_within_the_noise(studies, veto):
    """With the dev veto alone it is the noise that keeps the degenerate configuration out."""
    selection = studies[veto].selection
    assert selection["chosen"]["config"] == "conf-soft-m0-k1"
    assert selection["chosen"]["eval_omega"] == pytest.approx(70.5, abs=0.05)
    assert (DEGENERATE in selection["chosen"]["reason"]) == (veto == "dev")
    assert (DEGENERATE in selection["resamples"]["picks"]) == (veto == "dev")
    assert selection["label_free_veto"]["chosen_passes"] is True
    assert selection["guard"] == studies[veto].provenance["veto"] == veto
    # 57.7, and the best dev score is 64.5
    assert any("far below the best" in each for each in selection["warnings"]) == (veto != "faults")


def test_it_excludes_nothing_else_of_the_published_grid(studies):
    found = studies["dev"].selection["label_free_veto"]
    assert list(found["cut"]) == [DEGENERATE]
    by_role = {role: veto["cut"] for role, veto in found["by_role"].items()}
    assert by_role == {"dev": [DEGENERATE], "eval": [DEGENERATE]}
    assert found["basis"] == "embedding-space pseudo-anomalies"


def test_what_other_vetoes_choose_is_reported_whichever_is_obeyed(studies):
    first = studies["paper"].selection["rows"]
    assert [one.selection["rows"] for one in studies.values()] == [first] * len(studies)


@pytest.mark.parametrize("machine", ["fan", "bearing"])
def test_a_search_does_not_choose_what_detects_nothing(machine):
    train = real_table(machine).select(split="train")
    X, domains = train.matrix(), train.columns["domain"]
    pool = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", DEGENERATE]
    search = daco.LabelFreeSearch(pool).fit(X, domains=domains)
    assert search.cv_results_["vetoed"].tolist() == [name == DEGENERATE for name in pool]
    assert list(search.choice_.vetoed) == [DEGENERATE]
    assert DEGENERATE not in (search.choice_.pick, search.best_params_["config"])
    unguarded = daco.LabelFreeSearch(pool, veto=False).fit(X, domains=domains)
    assert unguarded.choice_.criterion == search.choice_.criterion
    if machine == "bearing":  # where it looks best balanced
        assert unguarded.choice_.pick == DEGENERATE


def test_select_leaves_out_what_its_veto_excludes():
    normals = real_table("bearing").select(split="train")
    (choice,) = select_label_free(normals, daco.paper_grid()).machines
    assert list(choice.vetoed) == [DEGENERATE]
    assert min(choice.criterion, key=choice.criterion.get) == DEGENERATE
    assert DEGENERATE not in (choice.pick, choice.use)


def test_a_choice_by_both_vetoes_can_be_frozen_and_verified(studies, tmp_path):
    """The run's folder holds the last of the studies, which obeyed both."""
    document = freeze(studies["both"].folder, created="2026-11-15", beside=tmp_path)
    assert document["frozen"]["config"] == "conf-soft-m0-k1"
    assert DEGENERATE in document["vetoed"]
    path = tmp_path / "prereg.json"
    write_json(document, path)
    assert {check.status for check in verify(path).checks} == {"ok"}
    edited = document | {"veto": "paper"}
    write_json(edited | {"sha256": document_hash(edited)}, path)
    assert "changed" in {check.status for check in verify(path).checks}
