"""Names of configurations: the name is the configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import daco
from daco.errors import ConfigError
from daco.method.config import (
    ASSIGNMENTS,
    CALIBRATIONS,
    NEIGHBOUR_SCORERS,
    Base,
    ScoreConfig,
    blind_pool,
    calibrations_of,
    parse_grid,
)

labels = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,9}", fullmatch=True)
neighbours = st.builds(Base, st.sampled_from(NEIGHBOUR_SCORERS), st.integers(1, 999))
external = st.builds(Base, st.just("ext"), st.just(0), labels)
blends = st.lists(labels, max_size=3, unique=True).map(
    lambda each: Base("blend", 0, "+".join(each))
)
bases = neighbours | external | blends


@st.composite
def configs(draw):
    base = draw(bases)
    suitable = [name for name in CALIBRATIONS if name != "ratio" or not base.signed]
    calibration = draw(st.sampled_from([None, *suitable]))
    fields = {"calibration": calibration}
    if calibration is not None:
        fields["assignment"] = draw(st.sampled_from(ASSIGNMENTS))
    if calibration == "conf":
        fields["m"] = draw(st.integers(0, 10**6) | st.floats(0, 1e4).map(lambda m: round(m, 3)))
    return ScoreConfig(base.scorer, base.k, label=base.label, **fields)


@given(configs())
def test_the_name_is_the_configuration(config):
    assert ScoreConfig.parse(config.name) == config
    assert ScoreConfig.parse(config.name).name == str(config) == config.name
    assert config.base.words


def test_fields_that_are_left_out_have_defaults():
    assert ScoreConfig(k=1, m=0, assignment="soft").name == "conf-soft-m0-k1"
    assert ScoreConfig().name == "raw-k1"
    assert ScoreConfig("blend", k=7) == ScoreConfig("blend")
    config = ScoreConfig.parse("conf-soft-m0-blend+iforest+lof")
    assert config == ScoreConfig("blend", assignment="soft", label="iforest+lof")
    assert config.base.labels == ("iforest", "lof")
    assert ScoreConfig.parse("ext-iforest").base.labels == ("iforest",)


def test_grids_have_the_published_sizes_families_and_order():
    grid = daco.paper_grid()
    assert len(grid) == len(set(grid)) == 51
    assert daco.paper_grid(45) == grid[:45]
    assert len({config.family for config in grid}) == 10
    assert len({config.family for config in grid[:45]}) == 7
    assert [(each.k, each.family) for each in grid[:45:15]] == [(k, "raw") for k in (1, 2, 4)]
    assert [config.name for config in grid[-2:]] == ["conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"]
    assert parse_grid(config.name for config in grid) == grid
    assert set(blind_pool()) < {config for config in grid if config.k == 1}
    assert set(blind_pool()[:7]) < set(grid[:45])


@pytest.mark.parametrize("base", [Base("varmin", 4), Base("blend"), Base("ext", label="iforest")])
def test_the_candidates_of_a_base_score_are_its_soft_calibrations(base):
    candidates = calibrations_of(base)
    assert {config.base for config in candidates} == {base}
    assert [config.calibration for config in candidates] == [None, *["conf"] * 5, "zscore"]
    assert [config.m for config in candidates] == [0, 0, 10, 30, 100, 300, 0]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("conf-soft-m0-K1", "conf-soft-m0-k1"),
        ("raw-k01", "raw-k1"),
        ("conf-soft-m10.0-k1", "conf-soft-m10-k1"),
        ("ldn_ratio_K16", "ldn-ratio-K16"),
        ("conf-soft-m0-ldn-ratio-K1", "conf-soft-m0-ldnK1"),
        ("conf-soft-m0-blnd", "conf-soft-m0-blend"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_valid_one(wrong, meant):
    with pytest.raises(ConfigError, match=rf"Unknown configuration '{wrong}'.*'{meant}'"):
        ScoreConfig.parse(wrong)


@pytest.mark.parametrize(
    "wrong",
    ["", "raw", "raw-k0", "raw-raw-k1", "ratio-soft-m0-k1", "conf-soft-k1", 3, None, "vote", "beam",
     "recommended", "ratio-soft-varmin-K4", "ratio-soft-blend", "blend+", "blend+1", "blend+a+a",
     "blend-K4", "ext-", "ext-1", "ext-a-b", "ratio-soft-ext-a"],
)  # fmt: skip
def test_what_is_no_name_is_refused(wrong):
    with pytest.raises(ConfigError):
        ScoreConfig.parse(wrong)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"scorer": "cosine"}, "scorer"),
        ({"k": 0}, "'k'"),
        ({"k": 10**9}, "'k'"),
        ({"calibration": "conf"}, "assignment"),
        ({"assignment": "near"}, "assignment"),
        ({"calibration": "ratio", "assignment": "soft", "m": 3}, "'m'"),
        ({"assignment": "soft", "m": float("nan")}, "'m'"),
        ({"scorer": "ext", "label": "a b"}, "label"),
        ({"label": "iforest"}, "label"),
        ({"scorer": "ldn-diff", "calibration": "ratio", "assignment": "soft"}, "may be negative"),
    ],
)
def test_fields_that_make_no_configuration_are_named(fields, named):
    with pytest.raises(ConfigError, match=named):
        ScoreConfig(**fields)


def test_grids_refuse_repeats_emptiness_and_other_sizes():
    for wrong in (["raw-k1", "raw-k2", "raw-k1"], [], None):
        with pytest.raises(ConfigError):
            parse_grid(wrong)
    with pytest.raises(ConfigError, match="45 or 51"):
        daco.paper_grid(50)
