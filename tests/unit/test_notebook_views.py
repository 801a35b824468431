"""What notebooks show of tables, verdicts and studies."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np

from daco import EmbeddingTable
from daco.detector.model import MachineModel
from daco.detector.verdict import judge_embeddings
from daco.experiments.study import study

RNG = np.random.default_rng(0)
TABLE = EmbeddingTable.from_arrays(
    RNG.normal(size=(80, 4)) + 2,
    machine="<fan>",
    split=["train"] * 50 + ["test"] * 30,
    domain=["source"] * 40 + ["target"] * 10 + ["source", "target"] * 15,
    label=[0] * 65 + [1] * 15,
    path=[f"{row}.wav" for row in range(80)],
)


def cells(shown):
    """Rows of an HTML table; a parser of XML takes nothing that is not well formed."""
    table = ET.fromstring(shown._repr_html_())
    title = table.findtext("caption")
    return title, [[cell.text or "" for cell in row] for row in table.iter("tr")]


def test_a_table_shows_its_clips_by_machine_split_domain_and_label():
    title, rows = cells(TABLE)
    assert title == repr(TABLE)
    assert rows[0] == ["machine", "section", "split", "domain", "label", "clips"]
    assert ["<fan>", "00", "train", "source", "normal", "40"] in rows
    assert sum(int(row[-1]) for row in rows[1:]) == 80


def test_a_study_shows_its_choice_and_the_pick_of_every_rule():
    result = study(TABLE, grid=["raw-k1", "conf-soft-m0-k1"], workers=1, n_splits=5)
    title, rows = cells(result)
    assert title.startswith(result.run["choice"]["config"])
    assert [row[0] for row in rows[1:]] == result.rules()["rule"].tolist()


def test_a_verdict_shows_its_decision_and_what_it_rests_on():
    X = RNG.normal(size=(60, 6)).astype(np.float32) + 3
    names = [f"{row}.wav" for row in range(60)]
    model = MachineModel.fit(X, machine="fan", clip_names=names, config="raw-k1", frontend=None)
    verdict = next(judge_embeddings(model, -X[:1], ["odd & loud.wav"]))
    title, rows = cells(verdict)
    assert title == "fan, odd & loud.wav: anomalous"
    facts = dict(rows[1:])
    assert "threshold" in facts["score"]
    assert "training recordings only" in facts["p-value"]
    assert facts["most similar normal"].split(",")[0] in names
