"""The label-free veto beside the dev veto, in studies of two real machines."""

from __future__ import annotations

import numpy as np
import pytest
from real_tables import real_table
from shared_data import shared

import daco
from daco.experiments.labelfree import select_label_free
from daco.experiments.prereg import document_hash, freeze
from daco.experiments.study_tables import write_json
from daco.experiments.verification import verify
from daco.method.config import blind_pool

DEGENERATE = "ldn-diff-K16"
GUARDS = ("dev", "faults", "both")


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Bearing as development machine, fan as evaluation machine, under each veto."""
    folder = tmp_path_factory.mktemp("run")
    tables = real_table("bearing"), real_table("fan")
    return {
        veto: daco.study(*tables, out=folder, veto=veto, n_splits=10, workers=1) for veto in GUARDS
    }


@pytest.fixture(scope="module")
def frontier():
    """The wide grid on the band-preserving readout of the same machines."""

    def banded(machine):
        table = real_table(machine)
        data = np.load(shared("real", "embeddings", f"{machine}_mn04_band.npz"))
        assert data["file_name"].tolist() == table.columns["path"].tolist()
        columns = {name: list(table.columns[name]) for name in ("machine", "domain", "split")}
        return daco.EmbeddingTable.from_arrays(
            {"band": data["band"].astype(np.float32)},
            label=list(table.columns["label"]),
            path=list(table.columns["path"]),
            **columns,
        )

    return daco.study(banded("bearing"), banded("fan"), grid="frontier", n_splits=10, workers=1)


def test_the_dev_veto_passes_what_detects_nothing_and_the_study_warns(studies):
    """On the bearing the degenerate configuration scores 61.4; on the fan 52.9."""
    selection = studies["dev"].selection
    assert selection["chosen"]["config"] == DEGENERATE
    assert DEGENERATE not in selection["veto"]["removed"]
    (warning,) = selection["warnings"]
    assert warning.startswith(f"{DEGENERATE} is excluded by the label-free veto")
    assert selection["label_free_veto"]["chosen_passes"] is False
    assert studies["dev"].provenance["veto"] == "dev"


@pytest.mark.parametrize(
    ("veto", "config", "omega"),
    [
        ("faults", "conf-soft-m0-k1", 70.5),  # the default is within the noise of the smallest
        ("both", "conf-soft-m0-ldnK1", 68.2),
    ],
)
def test_the_label_free_veto_keeps_it_out(studies, veto, config, omega):
    selection = studies[veto].selection
    assert selection["chosen"]["config"] == config
    assert selection["chosen"]["eval_omega"] == pytest.approx(omega, abs=0.05)
    assert selection["warnings"] == []
    assert selection["label_free_veto"]["chosen_passes"] is True
    assert selection["guard"] == studies[veto].provenance["veto"] == veto


def test_it_cuts_nothing_else_of_the_published_grid(studies):
    found = studies["dev"].selection["label_free_veto"]
    assert list(found["cut"]) == [DEGENERATE]
    assert {role: veto["cut"] for role, veto in found["by_role"].items()} == {
        "dev": [DEGENERATE],
        "eval": [DEGENERATE],
    }
    assert found["basis"] == "embedding-space pseudo-anomalies"


def test_the_other_veto_is_told_whichever_is_obeyed(studies):
    kept = ("veto", "floor", "label_free_veto")
    for one in studies.values():
        rules = {row["rule"]: row["config"] for row in one.selection["rows"]}
        assert rules["guarded criterion"] == DEGENERATE
        assert rules["criterion, label-free veto"] == "conf-soft-m0-k1"
        assert rules["criterion, both vetoes"] == "conf-soft-m0-ldnK1"
        for name in kept:
            ours, first = one.selection[name], studies["dev"].selection[name]
            if name == "label_free_veto":
                ours, first = ({**each, "chosen_passes": None} for each in (ours, first))
            assert ours == first


def test_other_seeds_are_guarded_by_the_same_veto(studies):
    assert set(studies["dev"].stability["guarded_pick"]) == {DEGENERATE}
    assert DEGENERATE not in set(studies["both"].stability["guarded_pick"])


def test_the_frontier_grid_runs_on_bands_from_tables_to_statistics(frontier):
    names = [config.name for config in daco.frontier_grid(bands=4)]
    assert frontier.grid["config"].tolist() == names
    assert frontier.stats["n_configs"] == len(names) >= 200
    families = {daco.ScoreConfig.parse(name).family for name in names}
    assert len(frontier.stats["families"]) == len(families)
    scores = frontier.grid.set_index("config")
    # METHODS and the data's README give these for the same vectors, with one decimal
    expected = {
        "raw-k1": (59.0, 63.0),
        "ldn-ratio-K1": (63.3, 70.3),
        "varmin-K4": (65.0, 72.2),
        "beam": (58.8, 63.3),
        "beam-varmin-K4": (65.3, 73.7),
    }
    for config, (bearing, fan) in expected.items():
        assert scores.loc[config, "dev_omega"] == pytest.approx(bearing, abs=0.1)
        assert scores.loc[config, "eval_omega"] == pytest.approx(fan, abs=0.1)
    cut = frontier.selection["label_free_veto"]["cut"]
    assert DEGENERATE in cut
    assert not any("varmin" in name or "beam" in name for name in cut)
    # what the paper calls the frontier is of k = 1, whatever else is in the grid
    assert frontier.frontier["variant"].tolist().count("daco-m0") == 2


@pytest.mark.parametrize("machine", ["fan", "bearing"])
def test_a_search_does_not_choose_what_cannot_hear(machine):
    train = real_table(machine).select(split="train")
    X, domains = train.matrix(), train.columns["domain"]
    pool = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", DEGENERATE]
    search = daco.LabelFreeSearch(pool).fit(X, domains=domains)
    assert search.results_.set_index("config")["vetoed"].to_dict() == {
        name: name == DEGENERATE for name in pool
    }
    assert search.best_config_ != DEGENERATE
    assert f"the veto excludes {DEGENERATE}" in search.reason_
    unguarded = daco.LabelFreeSearch(pool, veto=False).fit(X, domains=domains)
    assert unguarded.results_["pseudo_score"].isna().all()
    assert unguarded.results_["criterion"].tolist() == search.results_["criterion"].tolist()
    if machine == "bearing":  # where it looks best balanced
        assert unguarded.best_config_ == DEGENERATE


def test_select_leaves_out_what_its_veto_cuts():
    normals = real_table("bearing").select(split="train")
    unguarded = select_label_free(normals, daco.paper_grid())
    (choice,) = unguarded.machines
    assert tuple(choice.cut) == (DEGENERATE,)
    assert choice.criteria[DEGENERATE] < choice.criterion  # it was the smallest of all
    assert DEGENERATE not in (choice.pick, choice.use, *choice.within_noise)
    assert any("the label-free veto excludes them" in note for note in unguarded.notes)
    (known,) = select_label_free(normals).machines
    assert known.use not in known.cut
    assert list(known.pseudo_scores) == [config.name for config in blind_pool()]


def test_a_choice_by_both_vetoes_can_be_frozen_and_verified(studies, tmp_path):
    """The run's folder holds the last of the studies, guarded by both."""
    chosen = studies["both"].selection["chosen"]["config"]
    document = freeze(studies["both"].folder, created="2026-11-15", beside=tmp_path)
    assert document["frozen"]["config"] == chosen != DEGENERATE
    assert document["label_free_veto"]["cut"] == [DEGENERATE]
    path = tmp_path / "prereg.json"
    write_json(document, path)
    assert {check.status for check in verify(path).checks} == {"ok"}
    # Without what the veto cut, the rule would pick what it was there to cut.
    edited = document | {"label_free_veto": document["label_free_veto"] | {"cut": []}}
    write_json(edited | {"sha256": document_hash(edited)}, path)
    assert "changed" in {check.status for check in verify(path).checks}
