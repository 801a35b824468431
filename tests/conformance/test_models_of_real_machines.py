"""Models of two real machines: how often they alarm on normals that are not in the bank.

990 source and 10 target normals each, 50 + 50 test normals and 100 anomalies, embedded by others.
The test clips come from other sessions than the training clips and are not exchangeable with them,
so that no rate is known before the model was calibrated with new normals.
"""

from __future__ import annotations

import numpy as np
import pytest
from real_tables import NO_NETWORK, real_table

import daco
from daco.detector.fit import CHOOSE, fit_machines
from daco.detector.model import MachineModel
from daco.detector.revision import calibrate_with
from daco.embedding.normals import Normals
from daco.experiments.select import select_label_free

RATES = (0.05, 0.1, 0.2)
ALL_VIEWS = f"{NO_NETWORK}+mn04"

# Share of (source, target) test normals that are alarms at each of the rates, second 25 of each
# domain after calibrating with the first 25, and the share of faults found at 0.1.
COMMISSIONED = {
    ("bearing", NO_NETWORK): (((0.00, 0.16), (0.00, 0.16), (0.12, 0.20)), 0.36),
    ("bearing", ALL_VIEWS): (((0.00, 0.16), (0.00, 0.16), (0.08, 0.16)), 0.37),
    ("fan", NO_NETWORK): (((0.00, 0.04), (0.04, 0.16), (0.24, 0.20)), 0.55),
    ("fan", ALL_VIEWS): (((0.00, 0.00), (0.00, 0.00), (0.16, 0.20)), 0.54),
}
AUC = {
    ("bearing", NO_NETWORK): 0.718,
    ("bearing", ALL_VIEWS): 0.729,
    ("fan", NO_NETWORK): 0.773,
    ("fan", ALL_VIEWS): 0.788,
}


@pytest.fixture(scope="module", params=sorted(AUC), ids="-".join)
def machine(request):
    """The case, its model, and the vectors, anomalies and domains of the test clips."""
    name, views = request.param
    table = real_table(name, embeddings=views)
    train, test = (table.select(split=split) for split in ("train", "test"))
    model = MachineModel.fit(
        train.matrix(views),
        train.column("domain").tolist(),
        machine=name,
        views=table.layout(views),
        clip_names=train.column("path"),
    )
    anomalous, domains = test.column("label") == 1, test.column("domain")
    return request.param, model, test.matrix(views), anomalous, domains


def test_anomalies_rank_above_normals(machine):
    case, model, clips, anomalous, _ = machine
    assert model.config == "blend"
    scores = model.score(clips).scores
    above = scores[anomalous][:, None] > scores[~anomalous]
    # one pair of 10,000 that a rounding turns round is 0.0001
    assert above.mean() == pytest.approx(AUC[case], abs=2e-3)


def test_the_rate_is_called_unknown_before_calibrating(machine):
    _, model, *_ = machine
    assert "unknown" in model.basis_sentence
    assert set(model.expected_rates().values()) == {None}


def test_rates_after_calibrating_are_as_stated_and_within_the_range(machine):
    """One of 25 clips may change sides, and one of the reference with it."""
    case, model, clips, anomalous, domains = machine
    normal = {name: np.flatnonzero(~anomalous & (domains == name)) for name in ("source", "target")}
    new = np.concatenate([rows[:25] for rows in normal.values()])
    model = calibrate_with(model, clips[new], domains[new].tolist())
    assert model.reference.sizes == {"source": 25, "target": 25}
    realised, found = COMMISSIONED[case]
    for rate, stated in zip(RATES, realised, strict=True):
        judged = model.at_rate(rate)
        alarms = judged.score(clips).alarms
        rates = {name: alarms[rows[25:]].mean() for name, rows in normal.items()}
        assert list(rates.values()) == pytest.approx(stated, abs=0.081)
        for name, (low, high) in judged.expected_rates().items():
            # within three standard deviations of 25 clips around the limits
            assert low - 3 * np.sqrt(low * (1 - low) / 25) <= rates[name]
            assert rates[name] <= high + 3 * np.sqrt(high * (1 - high) / 25)
        if rate == 0.1:
            assert alarms[anomalous].mean() == pytest.approx(found, abs=0.04)


@pytest.mark.parametrize("name", ["bearing", "fan"])
def test_everything_that_chooses_chooses_the_same(name):
    """A search, ``daco select``, ``daco study`` and ``daco fit --config choose``."""
    table = real_table(name)
    train = table.select(split="train")
    domains = train.column("domain").astype(str)
    choice = daco.LabelFreeSearch().fit(train.matrix(), domains=domains).choice_
    (selected,) = select_label_free(table).machines
    studied = daco.study(table, grid="9", rule="label-free", workers=1).choose("label-free")
    normals = Normals(name, train.matrix(), tuple(domains), tuple(train.column("path")), None, {})
    ((_, model),) = fit_machines([normals], config=CHOOSE)
    assert model.config == choice.config
    assert model.provenance["selection"] == choice.to_dict()
    for other in (selected.choice, studied):
        assert (other.config, other.pick, other.reason) == (
            choice.config,
            choice.pick,
            choice.reason,
        )
        assert other.criterion == pytest.approx(choice.criterion, abs=1e-12)
        assert other.agreement == choice.agreement
        assert set(other.vetoed) == set(choice.vetoed)
