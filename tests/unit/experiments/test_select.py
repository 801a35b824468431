"""Choosing for machines of which there are only normal recordings."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco.data.table import EmbeddingTable
from daco.errors import InputError
from daco.experiments.select import select_label_free

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


def test_a_machine_without_training_clips_is_left_out():
    stranger = EmbeddingTable.from_arrays(vectors(5, 8), machine="other", split="test")
    more = select_label_free(joined(machine(), stranger))
    assert more.to_dict() == select_label_free(machine()).to_dict()


def test_one_for_all_machines_has_the_mean_criterion():
    table = joined(
        machine(seed=0), machine(seed=5, shift=2, machine="valve"), machine(30, seed=7, machine="x")
    )
    selection = select_label_free(table)
    criteria = [pd.Series(each.choice.criterion) for each in selection.machines]
    expected = pd.concat(criteria, axis=1).mean(axis=1)
    assert selection.common.choice.criterion == pytest.approx(expected.to_dict())
    floors = [each.floor for each in selection.machines]
    assert selection.common.floor == pytest.approx(np.mean(floors))
    assert selection.common.domains == {"machines": 3}


def test_machines_that_cannot_be_compared_get_the_default_and_say_so():
    lonely = machine(20, 0, machine="lonely")
    selection = select_label_free(joined(machine(), lonely, machine(20, 1, machine="poor")))
    _, one_domain, one_clip = selection.machines
    assert (one_domain.choice.config, one_domain.floor) == (DEFAULT, None)
    assert "1 clip of target" in one_clip.choice.reason
    assert selection.common.domains == {"machines": 1}
    assert select_label_free(lonely).common is None


def test_three_domains_sections_and_years():
    X = vectors(90)
    X[60:] *= 2
    table = EmbeddingTable.from_arrays(X, domain=["a"] * 40 + ["b"] * 20 + ["c"] * 30)
    (three,) = select_label_free(table).machines
    assert three.domains == {"a": 40, "b": 20, "c": 30}
    assert three.floor > 0
    tables = [machine(section="00"), machine(section="01"), machine(section="00", year=2024)]
    selection = select_label_free(joined(*tables), ["raw-k1", DEFAULT])
    assert [each.machine for each in selection.machines] == ["fan_00", "fan_01", "fan (2024)"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"domain": ["a"] * 60 + [None] * 10}, "10 training clips without .*fan"),
        ({"label": [0] * 68 + [1] * 2}, "2 training clips labelled as anomaly"),
        ({"split": "test"}, "no clip of split 'train'"),
    ],
)
def test_mistakes_are_named(columns, message):
    with pytest.raises(InputError, match=message):
        select_label_free(machine(**columns))


def test_progress_counts_machines_and_the_document_is_plain():
    seen = []
    table = joined(machine(), machine(machine="valve"))
    selection = select_label_free(table, ["raw-k1", DEFAULT], progress=lambda *at: seen.append(at))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    document = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert document["machines"][0]["choice"]["reason"] == selection.machines[0].choice.reason
    assert document["machines"][0]["floor"] > 0
