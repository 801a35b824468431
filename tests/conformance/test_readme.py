"""What the README and the evidence state about real machines is what a study gives."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from real_tables import real_table
from shared_data import ROOT

import daco
from daco.detector.model import MachineModel
from daco.evaluation.intervals import clip_bootstrap
from daco.evaluation.metrics import QUANTITIES, harmonic_mean

CONFIG = re.compile(r"`([a-zA-Z0-9-]+)`")
NUMBER = re.compile(r"\d+\.\d")
RATES = re.compile(r"^\| (fan|bearing) \| `(\w+)` \|(.+)\|$", re.M)


def table_rows(file, heading):
    """The configuration and the numbers of each row of the first table after a heading."""
    text = (ROOT / file).read_text(encoding="utf-8").split(heading)[1]
    table = text[text.index("\n|") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [(CONFIG.search(line)[1], [float(n) for n in NUMBER.findall(line)]) for line in table]


def evidence_rows():
    return table_rows("benchmarks/RESULTS.md", "### Five configurations on the real machines")


@pytest.fixture(scope="module")
def result():
    configs = [config for config, _ in evidence_rows()]
    return daco.study(real_table("fan", "bearing"), grid=configs, n_splits=10, workers=1)


def test_the_readme_has_the_scores_and_gains_of_the_evidence():
    short = [
        (config, [numbers[3], *numbers[7:]])  # without AUC and pAUC
        for config, numbers in evidence_rows()
    ]
    assert table_rows("README.md", "real-machines:") == short


@pytest.mark.shared("real", "embeddings")
def test_the_table_of_real_machines(result):
    rows = evidence_rows()
    assert len(rows) == 5
    metrics = result.metrics().set_index(["machine", "configuration"])[list(QUANTITIES)]
    omega = result.grid().set_index("configuration")["dev_score"]
    for config, printed in rows:
        wanted = []
        for machine in ("fan", "bearing"):
            values = metrics.loc[(machine, config)].to_numpy(dtype=float)
            wanted += [*values, harmonic_mean(values)]
        # printed with one decimal
        assert printed[:9] == pytest.approx([*wanted, omega[config]], abs=0.0501)


@pytest.mark.shared("real", "embeddings")
def test_the_gains_and_their_intervals_over_clips(result):
    for config, printed in evidence_rows()[1:]:
        gain = clip_bootstrap(result.test_clips, config, "raw-k1")
        assert printed[9:] == pytest.approx([gain.estimate, gain.low, gain.high], abs=0.0501)


@pytest.mark.shared("real", "embeddings")
def test_the_table_of_rates_of_the_papers_threshold_and_dacos():
    """Shares of healthy, then of faulty clips, by domain."""
    rows = RATES.findall((ROOT / "benchmarks/RESULTS.md").read_text("utf-8"))
    assert len(rows) == 4
    for machine, network, shares in rows:
        table = real_table(machine, embeddings={"logmel": "logmel_mod"}.get(network, network))
        train, test = (table.select(split=split) for split in ("train", "test"))
        normals, domains = train.matrix(), train.column("domain").tolist()
        model = MachineModel.fit(normals, domains, machine=machine, config="conf-soft-m0-k1")
        scored = model.score(test.matrix())
        clips = pd.DataFrame({"paper": scored.scores > 0.9, "daco": scored.anomalous})
        found = clips.groupby([test.column("label"), test.column("domain")]).mean()
        wanted = [found.loc[label, rule] for label in (0, 1) for rule in ("paper", "daco")]
        printed = [list(map(float, each.split(" / "))) for each in shares.split(" | ")]
        # Two of 50 clips may change sides where arithmetic differs.
        assert np.abs(np.subtract(printed, wanted)).max() < 0.041
