"""Choosing for machines of which there are only normal recordings."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco.data.table import EmbeddingTable
from daco.errors import InputError
from daco.experiments.labelfree import select_label_free
from daco.method.config import blind_pool

DEFAULT = "conf-soft-m0-k1"


def vectors(n, seed=0, dim=8):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32) + 2


def machine(n_source=60, n_target=10, shift=1.0, seed=0, **columns):
    """Normals of one machine; `shift` moves the target domain away and spreads it out."""
    X = vectors(n_source + n_target, seed)
    X[n_source:] = X[n_source:] * (1 + shift / 4) + shift * vectors(1, seed + 1)
    domain = ["source"] * n_source + ["target"] * n_target
    return EmbeddingTable.from_arrays(X, **{"machine": "fan", "domain": domain, **columns})


def joined(*tables):
    columns = {
        name: np.concatenate([table.columns[name] for table in tables])
        for name in tables[0].columns
    }
    matrix = np.concatenate([table.matrix() for table in tables])
    return EmbeddingTable.from_arrays(
        matrix, **{name: values for name, values in columns.items() if name != "attributes"}
    )


def test_the_default_pool_is_the_nine():
    found = select_label_free(machine())
    assert found.candidates == tuple(config.name for config in blind_pool())
    assert found.dev_vetoed is None


def test_a_pick_inside_the_noise_is_not_worth_leaving_the_default():
    found = select_label_free(machine(shift=0.0), ["raw-k1", DEFAULT, "ratio-soft-k1"])
    (choice,) = found.machines
    assert choice.use == DEFAULT


def test_a_pick_outside_the_noise_is_used():
    """Domains of one centre and different spread: soft weights cannot tell their clips apart."""
    X = vectors(300, dim=16)
    X[200:] = 2 + 2 * (X[200:] - 2)
    table = EmbeddingTable.from_arrays(X, domain=["old"] * 200 + ["new"] * 100)
    (choice,) = select_label_free(table).machines
    assert choice.use == choice.pick != DEFAULT
    assert choice.criterion[choice.pick] < choice.criterion[DEFAULT]
    assert choice.agreement > 0.5


def test_only_training_clips_are_read():
    table = machine()
    test = EmbeddingTable.from_arrays(
        vectors(30, 9), machine="fan", split="test", domain=None, label=[0, 1] * 15
    )
    stranger = EmbeddingTable.from_arrays(vectors(5, 8), machine="other", split="test")
    assert select_label_free(joined(table, test, stranger)) == select_label_free(table)


def test_ties_fall_to_the_first_candidate():
    """A prior of a ten-thousandth of a clip moves no score past another: the counts are equal."""
    table = machine(shift=0.5)
    pools = (["conf-soft-m0-k1", "conf-soft-m0.0001-k1"], ["conf-soft-m0.0001-k1", DEFAULT])
    for pool in pools:
        (choice,) = select_label_free(table, pool).machines
        assert choice.criterion[pool[0]] == choice.criterion[pool[1]]
        assert choice.pick == pool[0]


def test_one_for_all_machines_has_the_mean_criterion():
    table = joined(
        machine(seed=0), machine(seed=5, shift=2, machine="valve"), machine(30, seed=7, machine="x")
    )
    found = select_label_free(table)
    means = {
        name: np.mean([choice.criterion[name] for choice in found.machines])
        for name in found.candidates
    }
    assert found.common.criterion == pytest.approx(means)
    floors = [choice.floor for choice in found.machines]
    assert found.common.floor == pytest.approx(np.mean(floors))
    assert found.common.domains == {"machines": 3}


def test_a_machine_with_one_domain_falls_back_and_says_so():
    table = joined(machine(), machine(20, 0, machine="lonely"))
    found = select_label_free(table)
    lonely = found.machines[1]
    assert (lonely.use, lonely.criterion, lonely.floor) == (DEFAULT, {}, None)
    assert "one domain" in lonely.reason
    assert found.common.domains == {"machines": 1}
    (alone,) = select_label_free(machine(20, 0), ["raw-k2", "raw-k1"]).machines
    assert alone.use == "raw-k2"


def test_a_domain_of_one_clip_falls_back_and_says_which():
    found = select_label_free(machine(20, 1))
    assert found.machines[0].use == DEFAULT
    assert "1 clip of target" in found.machines[0].reason
    assert found.common is None


def test_three_domains():
    X = vectors(90)
    X[60:] *= 2
    table = EmbeddingTable.from_arrays(X, domain=["a"] * 40 + ["b"] * 20 + ["c"] * 30)
    (choice,) = select_label_free(table).machines
    assert choice.domains == {"a": 40, "b": 20, "c": 30}
    assert choice.criterion[choice.use] is not None


def test_sections_and_years_are_machines_of_their_own():
    tables = [machine(section="00"), machine(section="01"), machine(section="00", year=2024)]
    found = select_label_free(joined(*tables), ["raw-k1", DEFAULT])
    assert [choice.machine for choice in found.machines] == [*("fan_00", "fan_01", "fan (2024)")]


# A dev grid


def dev_grid(**scores):
    return pd.DataFrame(
        {"config": list(scores), "dev_omega": [float(score) for score in scores.values()]}
    )


def test_a_dev_grid_vetoes_before_the_criterion_is_asked():
    grid = dev_grid(**{"raw-k1": 58, DEFAULT: 50, "ratio-soft-k1": 57, "conf-soft-m10-k1": 56})
    found = select_label_free(machine(), dev_grid=grid)
    assert found.dev_vetoed == (DEFAULT,)
    assert found.candidates == ("raw-k1", "conf-soft-m10-k1", "ratio-soft-k1")
    assert any(f"Left out by the dev scores: {DEFAULT}" in note for note in found.notes)
    assert any("the dev grid does not have them" in note for note in found.notes)


def test_the_decile_is_of_the_whole_dev_grid():
    """Vetoed are the worst of what was tried on labelled machines, not of the candidates."""
    names = [f"raw-k{k}" for k in range(1, 21)]
    grid = dev_grid(**{name: 50 + k for k, name in enumerate(names)}, **{DEFAULT: 80.0})
    found = select_label_free(machine(), [DEFAULT, "raw-k20", "raw-k1"], dev_grid=grid)
    assert found.candidates == (DEFAULT, "raw-k20")


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            machine(),
            {"candidates": ["raw-k9"], "dev_grid": dev_grid(**{DEFAULT: 5, "raw-k1": 6})},
            "leaves none of the 1 candidates",
        ),
        (machine(), {"dev_grid": pd.DataFrame({"config": ["raw-k1"]})}, "no column 'dev_omega'"),
        (
            machine(domain=["source"] * 60 + [None] * 10),
            {},
            r"10 training clips without a domain \(machines: fan\)",
        ),
        (machine(label=[0] * 68 + [1] * 2), {}, "2 training clips labelled as anomaly"),
        (machine(split="test"), {}, "no clip of split 'train'"),
        (machine(), {"candidates": ["conf-oracle-m0-k1"]}, "true domain"),
    ],
)
def test_mistakes_are_named(table, options, message):
    with pytest.raises(InputError, match=message):
        select_label_free(table, **options)


def test_progress_counts_machines():
    seen = []
    table = joined(machine(), machine(machine="valve"))
    select_label_free(table, ["raw-k1"], progress=lambda *state: seen.append(state))
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_the_document_is_plain_and_deterministic():
    documents = [select_label_free(machine()).to_dict() for _ in range(2)]
    texts = [json.dumps(document, allow_nan=False) for document in documents]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["machines"][0]["floor"] > 0
