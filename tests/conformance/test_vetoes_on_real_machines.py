"""The label-free veto beside the dev-score veto, in a study of two real machines."""

from __future__ import annotations

import pytest
from real_tables import real_table

import daco
from daco.experiments.select import select_label_free

DEGENERATE, DEFAULT = "ldn-diff-K16", "conf-soft-m0-k1"


@pytest.fixture(scope="module")
def study():
    """Bearing as development machine, fan as evaluation machine."""
    return daco.study(real_table("bearing"), real_table("fan"), workers=1)


def test_the_papers_choice_detects_nothing_and_the_study_warns(study):
    """On the bearing the degenerate configuration scores 61.4; on the fan 52.9."""
    choice = study.choose("paper")
    assert choice.config == DEGENERATE
    assert DEGENERATE not in choice.vetoed
    (warning,) = choice.warnings
    assert warning.startswith(f"{DEGENERATE} is excluded by the label-free veto")
    scores = study.rules().set_index("rule")["eval_score"]
    assert scores["paper"] == pytest.approx(52.9, abs=0.05)
    assert scores[["guarded", "label-free"]].tolist() == pytest.approx([70.5] * 2, abs=0.05)


@pytest.mark.parametrize("rule", ["guarded", "label-free"])
def test_the_default_stays_where_it_is_as_good_within_the_noise(study, rule):
    choice = study.choose(rule)
    assert choice.config == DEFAULT != choice.pick
    assert choice.stability.startswith("kept as the default within the noise")
    assert "label-free veto (pseudo score" in choice.vetoed[DEGENERATE]
    # 57.7, and the best dev score is 64.5
    assert any("far below the best" in each for each in choice.warnings) == (rule == "guarded")


def test_it_excludes_nothing_else_of_the_published_grid(study):
    grid = study.grid()
    assert grid.loc[~grid["viable"], "configuration"].tolist() == [DEGENERATE]
    assert list(study.choose("label-free").vetoed) == [DEGENERATE]


@pytest.mark.parametrize("machine", ["fan", "bearing"])
def test_a_search_does_not_choose_what_detects_nothing(machine):
    train = real_table(machine).select(split="train")
    X, domains = train.matrix(), train.columns["domain"]
    pool = ["raw-k1", DEFAULT, "ldn-ratio-K1", DEGENERATE]
    search = daco.LabelFreeSearch(pool).fit(X, domains=domains)
    assert search.cv_results_["vetoed"].tolist() == [name == DEGENERATE for name in pool]
    assert DEGENERATE not in (search.choice_.pick, search.best_params_["config"])
    unguarded = daco.LabelFreeSearch(pool, veto=False).fit(X, domains=domains)
    assert unguarded.choice_.criterion == search.choice_.criterion
    if machine == "bearing":  # where it looks best balanced
        assert unguarded.choice_.pick == DEGENERATE


def test_select_leaves_out_what_its_veto_excludes():
    normals = real_table("bearing").select(split="train")
    (machine,) = select_label_free(normals, daco.paper_grid()).machines
    choice = machine.choice
    assert list(choice.vetoed) == [DEGENERATE]
    assert min(choice.criterion, key=choice.criterion.get) == DEGENERATE
    assert DEGENERATE not in (choice.pick, choice.config)
