from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import daco
from daco.errors import ConfigError
from daco.method.bases import SCORERS, VOTES, Base, parse_base
from daco.method.config import (
    ASSIGNMENTS,
    CALIBRATIONS,
    ScoreConfig,
    blind_pool,
    frontier_grid,
    parse_grid,
)


@st.composite
def simple_bases(draw):
    scorer = draw(
        st.sampled_from([name for name in SCORERS if name not in ("zmin", "ext", *VOTES)])
    )
    facts = SCORERS[scorer]
    number = draw(st.integers(1, 999)) if facts.letter else 0
    return Base(scorer, number, bandwise=facts.local and draw(st.booleans()))


fusions = st.lists(simple_bases(), min_size=2, max_size=4, unique=True).map(
    lambda members: Base("zmin", members=tuple(members))
)


external = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,9}", fullmatch=True).map(
    lambda label: Base("ext", label=label)
)


@st.composite
def configs(draw):
    base = draw(simple_bases() | fusions | external)
    suitable = [name for name in CALIBRATIONS if name != "ratio" or not base.signed]
    calibration = draw(st.sampled_from([None, *suitable]))
    if calibration is None:
        return ScoreConfig(base)
    strength = 0
    if calibration == "conf":
        strength = draw(st.integers(0, 10**6) | st.floats(0, 1e4).map(lambda m: round(m, 3)))
    return ScoreConfig(base, calibration, draw(st.sampled_from(ASSIGNMENTS)), strength)


@given(configs())
def test_the_name_is_the_configuration(config):
    assert ScoreConfig.parse(config.name) == config
    assert ScoreConfig.parse(config.name).name == config.name


@given(simple_bases() | fusions | external)
def test_the_code_inside_a_name_is_the_base(base):
    assert parse_base(base.code) == base
    assert "{" not in base.words
    assert base.words


@given(configs(), configs())
def test_different_configurations_have_different_names(one, other):
    assert (one.name == other.name) == (one == other)


def test_recommended_is_a_name_for_the_vote():
    assert ScoreConfig.parse("recommended").name == "vote"


@pytest.mark.parametrize("name", ["ext-", "ext-1", "ext-a-b", "ratio-soft-ext-a", "zmin-k1+ext-a"])
def test_an_external_scorer_has_a_plain_label_and_no_ratio(name):
    with pytest.raises(ConfigError):
        ScoreConfig.parse(name)


def test_the_frontier_grid_begins_with_the_papers_and_repeats_nothing():
    for bands in (1, 8):
        grid = frontier_grid(bands)
        assert grid[:51] == daco.paper_grid()
        assert len(set(grid)) == len(grid)
        assert any(config.base.bandwise for config in grid) == (bands > 1)
    assert len(frontier_grid()) >= 200
    with pytest.raises(ConfigError, match="whole number"):
        frontier_grid(0)


def test_grids_have_the_published_sizes_families_and_order():
    grid = daco.paper_grid()
    assert len(grid) == len(set(grid)) == 51
    assert daco.paper_grid(45) == grid[:45]
    assert len({config.family for config in grid}) == 10
    assert len({config.family for config in grid[:45]}) == 7
    assert [config.name for config in grid[-2:]] == ["conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"]


def test_blind_pools_are_inside_the_paper_grid_and_hold_no_difference_variant():
    assert set(blind_pool(9)) < set(daco.paper_grid())
    assert set(blind_pool(7)) < set(daco.paper_grid(45))
    assert not any(config.base.scorer == "ldn-diff" for config in blind_pool())


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("conf-soft-m0-K1", "conf-soft-m0-k1"),
        ("Conf-Soft-m0-k1", "conf-soft-m0-k1"),
        ("raw-k01", "raw-k1"),
        ("conf-soft-m10.0-k1", "conf-soft-m10-k1"),
        ("ldn_ratio_K16", "ldn-ratio-K16"),
        ("zscore-softk2", "zscore-soft-k2"),
        ("beam-k1", "beam"),
        ("k1", "raw-k1"),
        ("conf-soft-m0-ldn-ratio-K1", "conf-soft-m0-ldnK1"),
        ("varmin-k4", "varmin-K4"),
        ("conf-soft-m0-beem", "conf-soft-m0-beam"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_valid_one(wrong, meant):
    with pytest.raises(ConfigError, match=rf"Unknown configuration '{wrong}'.*'{meant}'"):
        ScoreConfig.parse(wrong)


@pytest.mark.parametrize("removed", ["pca-d16", "memmix", "genrep-mix", "conf-soft-m0-memmix",
                                     "zmin-k1+pca-d2"])  # fmt: skip
def test_a_removed_scorer_is_answered_with_what_remains(removed):
    with pytest.raises(ConfigError, match=r"was removed.*'genrep'"):
        ScoreConfig.parse(removed)


@pytest.mark.parametrize(
    "wrong",
    ["", "raw", "raw-k0", "ratio-soft-m0-k1", "conf-soft-k1", 3, None, "zmin-k1", "zmin-k1+k1",
     "ratio-soft-varmin-K4", "beam-genrep", "zmin-k1+zmin-k1+k2", "raw-raw-k1"],
)  # fmt: skip
def test_what_is_no_name_is_refused(wrong):
    with pytest.raises(ConfigError):
        ScoreConfig.parse(wrong)


@pytest.mark.parametrize(
    "base",
    [
        Base("knn", 0),
        Base("knn", True),
        Base("cosine", 1),
        Base("genrep", 1),
        Base("genrep", bandwise=True),
        Base("genrep", label="mine"),
        Base("pca", 16),
        Base("zmin"),
        Base("zmin", members=(Base("knn", 1),)),
        Base("zmin", members=(Base("knn", 1), Base("knn", 1))),
        Base("knn", 1, members=(Base("knn", 1),)),
        Base("ext"),
        Base("ext", label="a b"),
    ],
)
def test_what_no_code_stands_for_is_no_base_of_a_configuration(base):
    with pytest.raises(ConfigError, match="'base' parameter of ScoreConfig must be"):
        ScoreConfig(base)


@pytest.mark.parametrize(
    ("base", "fields"),
    [
        (Base("knn", 1), ("conf",)),
        (Base("knn", 1), (None, "soft")),
        (Base("knn", 1), ("ratio", "soft", 3)),
        (Base("knn", 1), ("conf", "soft", float("nan"))),
        (Base("ldn-diff", 1), ("ratio", "soft")),
    ],
)
def test_fields_that_make_no_configuration_are_refused(base, fields):
    with pytest.raises(ConfigError, match="parameter of ScoreConfig must be"):
        ScoreConfig(base, *fields)


def test_grids_refuse_repeats_and_emptiness():
    with pytest.raises(ConfigError, match="'raw-k1' twice"):
        parse_grid(["raw-k1", "raw-k2", "raw-k1"])
    with pytest.raises(ConfigError, match="empty"):
        parse_grid([])
    with pytest.raises(ConfigError, match="45 or 51"):
        daco.paper_grid(50)
