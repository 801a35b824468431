"""What the README and the evidence state about real machines is what a study gives."""

from __future__ import annotations

import re

import pytest
from real_tables import real_table
from shared_data import ROOT

import daco
from daco.evaluation.intervals import clip_bootstrap
from daco.evaluation.metrics import QUANTITIES, harmonic_mean

CONFIG = re.compile(r"`([a-zA-Z0-9-]+)`")
NUMBER = re.compile(r"\d+\.\d")


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
