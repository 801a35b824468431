"""``daco paper`` on the authors' artifacts, and its figures against the paper's own text."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import typer
from shared_data import ROOT, shared
from typer.testing import CliRunner

from daco.commands.paper import paper
from daco.paper import PLACES, Status, errata, figures
from daco.paper.artifacts import Artifacts
from daco.paper.check import CAPTIONS, check_figure, paper_figures
from daco.paper.printed import numbers_in

app = typer.Typer()
app.command()(paper)


def artifacts():
    return shared("published", "daco-experiments")


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """One run of some seconds for all that looks at its records."""
    out = tmp_path_factory.mktemp("paper") / "paper.md"
    result = run(artifacts(), "--json", "--out", out)
    assert result.exit_code == 0, result.stdout[-2000:]
    return json.loads(result.stdout) | {"markdown": out.read_text(encoding="utf-8"), "out": out}


@pytest.fixture(scope="module")
def found(document):
    return {each["id"]: each for each in document["figures"]}


# The figures on the real artifacts


def test_nothing_is_unexpected(found):
    assert [each for each in found.values() if not each["expected"]] == []


def test_counts(document):
    counts = document["summary"]
    printed = counts["paper"]
    assert printed["figures"] == 544
    assert (printed["ok"], printed["read"]) == (389, 108)
    assert printed["differs"] == printed["differs as an erratum says"] == 9
    outside = ("needs audio", "needs code", "needs teams", "cited")
    assert [printed[status] for status in outside] == [8, 3, 7, 20]
    assert printed["quantities"] >= 190  # each counted once, however often it is printed
    beyond = counts["beyond"]
    assert (beyond["figures"], beyond["ok"], beyond["read"]) == (88, 85, 3)
    assert counts["unexpected"] == 0


def test_the_appendix_is_complete(found):
    values = [each for each in found.values() if each["place"] == "Appendix, machines"]
    assert len(values) == 135
    # clips with labels were released of the development machines only
    assert Counter(each["status"] for each in values) == {"ok": 7 * 9, "read": 8 * 9}


@pytest.mark.parametrize(
    ("figure", "erratum", "recomputed"),
    [
        ("e3.blind", 1, 59.63),
        ("table1.algorithm-1", 2, 59.50),
        ("method.decile", 3, 6),
        ("table2.random.beats-sd", 5, 2.045),
        ("e2.halves", 6, 0.90),
        ("discussion.cost", 7, 2.44),
        ("discussion.no-worse", 14, -1.41),
        ("method.floor-sd", 16, 0.0131),
    ],
)
def test_errata_that_touch_a_printed_figure(found, figure, erratum, recomputed):
    each = found[figure]
    assert (each["status"], each["erratum"], each["expected"]) == ("differs", erratum, True)
    assert each["recomputed"] == [pytest.approx(recomputed, abs=0.005)]


@pytest.mark.parametrize(
    ("figure", "key", "value"),
    [
        # the evidence of errata that touch no printed figure
        ("erratum-4.table", "text", "59.388"),
        ("erratum-4.log", "text", "59.160"),
        ("erratum-8.agreement", "text", "0.9870–1.0000"),
        ("erratum-13.pick", "recomputed", "zscore-hard-k2"),
        ("erratum-15.p", "recomputed", [pytest.approx(0.1338, abs=0.001)]),
        # the forward test
        ("forward.ch0.frozen-pick", "recomputed", "ratio-hard-k2"),
        ("forward.ch0.guarded", "recomputed", [pytest.approx(58.97, abs=0.005)]),
        ("forward.mix.rho-criterion", "recomputed", [pytest.approx(0.84, abs=0.005)]),
        ("frozen.prereg2026_grid", "status", "ok"),
        # what the artifacts cannot tell
        ("abstract.source-clips", "status", "needs audio"),
        ("setup.deviation", "status", "needs code"),
        ("e3.rank-dev", "status", "needs teams"),
        ("e3.first-team", "status", "cited"),
    ],
)
def test_figures_beyond_the_printed_ones_and_those_out_of_reach(found, figure, key, value):
    each = found[figure]
    assert each[key] == value
    if each["status"].startswith("needs") or each["status"] == "cited":
        assert each["recomputed"] is None
        assert each["note"]


# Computed or read

READ = {
    "the labels of the evaluation clips": {
        "metric": 72,  # the appendix, evaluation machines
        "lowest_metric": 1,
        "stored_score": 3,  # of three and four decimals; the metrics have two
        "recorded_clip_interval": 1,
    },
    "the recordings": {
        "diagnostic": 8,
        "recorded_picks_by_splits": 1,
        "criterion_of_pair": 1,
        "stored_score": 2,
    },
    "the network's weights": {"efficiency": 10},
    "the authors' computer": {"efficiency": 8, "cycle_seconds": 3, "study_minutes": 1},
}
"""How often each recipe copies the value that an artifact states, and what computing it needs."""


def name_of(recipe):
    """The recipe's name; of the inner one where it is repeated over settings."""
    words = recipe.split()
    return words[3] if words[0] == "over" else words[0]


def test_what_is_read_is_not_called_recomputed(found):
    read = {}
    for each in found.values():
        assert (each["status"] == "read") == bool(each["needs"]), each["id"]
        if each["needs"]:
            assert each["note"].startswith("Read, not recomputed"), each["id"]
            read.setdefault(each["needs"], Counter())[name_of(each["recipe"])] += 1
    assert read == READ


COUNTS = {
    *("configurations", "families", "backbones", "machines_of", "clips_per_machine"),
    *("blind_pool_size", "manifest_values", "differing_manifest", "nominal_levels"),
    "vetoed",  # 6 of any 51 different scores
    "floor",  # simulated from the numbers of clips
    "threshold_picks",  # 1 of 51 here and there
}
"""Recipes that count rows and names, which do not depend on the values in a table."""


def test_what_is_recomputed_follows_from_clips_machines_and_grids(copy, found):
    """A figure called recomputed changes with the values that it is computed from.

    Every value of the tables below the paper's is moved to another row, differently by column,
    and made smaller. The authors' records of their statistics stay as they are.
    """
    for at, path in enumerate(sorted((copy / "release" / "scores").rglob("*.csv"))):
        lines = [line.rsplit(",", 1) for line in path.read_text().split()]
        scores = np.roll([score for _, score in lines], 1 + at)
        rows = (f"{name},{score}" for (name, _), score in zip(lines, scores, strict=True))
        path.write_text("\n".join(rows) + "\n")
    patterns = ("*_grid.csv", "*_per_machine*.csv", "e1_dev.csv", "fpr_coverage.csv")
    for path in [path for pattern in patterns for path in (copy / "results").glob(pattern)]:
        table = pd.read_csv(path)
        for at, name in enumerate(table.select_dtypes("float")):
            if name != "nominal_fpr":
                table[name] = 0.9 * np.roll(table[name], 2 + 9 * at)
        table.to_csv(path, index=False)
    moved = Artifacts(copy)
    changes = {}
    for figure in figures():
        if found[figure.id]["status"] in ("ok", "differs"):
            before, after = found[figure.id], check_figure(figure, moved).record()
            name = name_of(figure.recompute)
            # a verdict, such as "n.s.", has its interval in the note
            changed = any(before[key] != after[key] for key in ("recomputed", "note"))
            changes[name] = changes.get(name, False) or changed
    assert {name for name, changed in changes.items() if not changed} == COUNTS


# The transcription, against the text of the paper

COMMANDS = re.compile(r"\\(?:emph|textbf|texttt|label|cref|Cref|cite)\b")
REPLACED = {
    "\\,": "",
    "\\ ": " ",
    "\\to": "→",
    "\\pm": "±",
    "--": "–",
    "~": " ",
    "$": "",
    "{": "",
    "}": "",
    "\\": "",
}


def plain(latex):
    """LaTeX as the figures are transcribed: no mathematics, no groups, single spaces."""
    text = COMMANDS.sub("", latex)
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    return " ".join(text.split())


def sections(tex):
    """The LaTeX of each place, without the tables and figures that float in it."""
    floating = r"\\begin\{(?:table|figure)\*?\}.*?\\end\{(?:table|figure)\*?\}"
    bodies = re.findall(floating, tex, re.S)
    floats = {re.search(r"\\label\{(\w+:\w+)\}", body)[1]: body for body in bodies}
    text = re.sub(floating, "", tex, flags=re.S)
    body = text[: text.index(r"\section*{Data and Code")]

    def between(start, end):
        return body[body.index(start) : body.index(end) if end else len(body)]

    labels = {
        "Section I": "intro", "": "related", "Section III": "setting", "Section IV": "method",
        "Section V": "setup", "Results": "results", "Section VI-A": "results-e1",
        "Section VI-B": "results-frontier", "Section VI-C": "results-transfer",
        "Section VI-D": "results-ablations", "Section VI-E": "results-ldn",
        "Section VI-F": "results-years", "Section VI-G": "results-efficiency",
        "Section VII": "discussion", "Section VIII": "conclusion",
    }  # fmt: skip
    starts = {name: rf"\label{{sec:{label}}}" for name, label in labels.items()}
    marks = dict(zip(starts, pairwise([*starts.values(), None]), strict=True))
    del marks[""], marks["Results"]
    marks["Abstract"] = (r"\begin{abstract}", r"\end{abstract}")
    places = {name: between(*ends) for name, ends in marks.items()}
    labels = {
        "Table I": "tab:selection",
        "Table II": "tab:backbones",
        "Table III": "tab:ldn",
        "Table IV": "tab:years",
        "Table V": "tab:efficiency",
        "Appendix": "tab:permachine",
        "Appendix, machines": "tab:permachine",
        "Fig. 2": "fig:gainsep",
        "Fig. 3": "fig:transfer",
    }
    return places | {name: floats[label] for name, label in labels.items()}


@pytest.fixture(scope="module")
def places():
    return sections(shared("paper.tex").read_text(encoding="utf-8"))


def test_every_printed_text_is_in_its_place(places):
    checked = 0
    for figure in figures():
        if figure.place in places:
            text = re.escape(figure.printed)
            alone = rf"(?<![\d.]){text}(?!\d|\.\d)"  # 5.2 is not in 55.2 and not in 5.21
            assert re.search(alone, plain(places[figure.place])), figure.id
            checked += 1
    assert checked == sum(f.place in {p.name for p in PLACES if p.in_paper} for f in figures())


def cells(latex):
    """The cells of a table's rows, the header left out."""
    body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")]
    rows = [row.split("&") for row in re.sub(r"\\midrule", "", body).split(r"\\")]
    return [[plain(cell) for cell in row] for row in rows if len(row) > 1]


def test_tables_are_transcribed_cell_by_cell(places):
    """All numbers of a table's body, in its order: none left out, none out of place."""
    first_columns = {"Table I": 2, "Table II": 1, "Table III": 1, "Table IV": 1, "Table V": 1}
    for table, first in first_columns.items():
        wanted = [
            number
            for row in cells(places[table])
            for cell in row[first:]
            for number in numbers_in(cell)
        ]
        ours = [
            number
            for figure in figures()
            if figure.place == table
            and not figure.what.startswith("caption")
            and figure.rule != "name"
            and not figure.id.endswith("algorithm-1")  # the same cell a second time
            for number in numbers_in(figure.printed)
        ]
        assert ours == wanted, table


def test_the_appendix_is_transcribed_cell_by_cell(places):
    systems = ("raw-k1", "conf-soft-m0-k1", "conf-soft-m0-ldnK1")
    columns = [(s, q) for s in systems for q in ("auc_source", "auc_target", "pauc")]
    wanted = {
        f"appendix.{row[0].split()[-1]}.{system}.{quantity}": cell
        for row in cells(places["Appendix"])
        if len(row) == 10
        for (system, quantity), cell in zip(columns, row[1:], strict=True)
    }
    ours = {f.id: f.printed for f in figures() if f.place == "Appendix, machines"}
    assert ours == wanted


NO_RESULTS = {
    "Section III": {"0.1"},  # the range of the partial AUC
    "Section IV": {"0.01"},  # below which the criterion is called noise
    "Section V": {"0.438"},  # part of a checkpoint's name
    "Section VI-B": {"0.10"},  # a level, beside what was measured at it
    "Section VII": {"0.091", "0.005"},  # 1/11, and the distance called equal
}


def test_no_decimal_number_of_the_text_is_left_out(places):
    for place, latex in places.items():
        if not place.startswith(("Abstract", "Section", "Fig")):
            continue
        text = re.sub(r"\\includegraphics\[.*?\]", "", latex)
        written = set(re.findall(r"(?<![\d.])\d+\.\d+", plain(text)))
        ours = {
            number.lstrip("+-")
            for figure in figures()
            if figure.place == place
            for number in numbers_in(figure.printed)
        }
        assert written - ours == NO_RESULTS.get(place, set()), place


# The command


def test_the_command_of_the_readme_prints_a_table_that_fits_and_the_errata(monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("daco paper ")]
    result = run(*shlex.split(line, comments=True)[2:])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = [" ".join(line.split()) for line in lines]
    assert "random, BEATs, sd 2.1 2.045 differs [5]" in words
    assert "63 ok, 72 read; --all lists all" in words
    assert "Nothing unexpected." in words
    for erratum in errata():
        assert any(line.startswith(f"[{erratum.number}] ") for line in words)


def test_json(document, found):
    assert document["schema"] == 2
    assert [each["number"] for each in document["errata"]] == [e.number for e in errata()]
    assert list(found) == [figure.id for figure in figures()]
    assert found["table2.random.beats-sd"] == {
        "id": "table2.random.beats-sd",
        "place": "Table II",
        "what": "random, BEATs, sd",
        "printed": "2.1",
        "recomputed": [pytest.approx(2.045, abs=0.001)],
        "text": "2.045",
        "error": [0.0],
        "status": "differs",
        "needs": "",
        "expected": True,
        "erratum": 5,
        "note": "",
        "recipe": "random_score beats sd",
    }


def test_markdown(document):
    text = document["markdown"]
    assert "| oracle, EAT | 59.76 | 59.762 | ok |" in text
    assert text.count("\n| ") > len(figures())
    assert text.count("\n16. ") == 1


# Figures 1 to 3


def test_the_figures_are_written_beside_the_document(document):
    for name, caption in CAPTIONS.items():
        file = document["out"].with_name(f"paper-{name}.svg")
        ElementTree.parse(file)
        assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert f"![{caption}]({file.name})" in document["markdown"]


@pytest.fixture(scope="module")
def drawn():
    return paper_figures(Artifacts(artifacts()))


def test_figure_1_is_the_frontier_of_the_dev_machines(drawn):
    (ax,) = drawn["fig1"].axes
    curve = ax.lines[0].get_xydata()  # raw, then m from 300 to 0
    assert np.round(curve[0], 1).tolist() == [70.8, 57.0]
    assert [np.round(x - y, 1) for x, y in curve[[0, -1]]] == [13.8, -1.2]
    assert ax.get_legend().get_texts()[0].get_text() == "development machines"


def test_figure_2_has_all_machines_and_the_printed_correlation(drawn):
    (ax,) = drawn["fig2"].axes
    dev, evaluation = (line.get_xydata() for line in ax.lines[:2])
    assert (len(dev), len(evaluation)) == (7, 8)
    assert "+0.39 over 15 machines" in ax.get_title(loc="left")
    points = np.round([*dev, *evaluation], 2).tolist()
    for separability, gain in ((0.55, 16.0), (0.65, 17.5), (0.80, -8.4)):  # Section VI-B
        assert any(abs(x - separability) < 0.006 and abs(y - gain) < 0.06 for x, y in points)


def test_figure_3_has_all_configurations_and_the_printed_correlations(drawn):
    titles = [ax.get_title(loc="left") for ax in drawn["fig3"].axes]
    assert [title.split(",")[0] for title in titles] == ["(a) ρ = +0.06", "(b) ρ = +0.91"]
    for ax, name in zip(drawn["fig3"].axes, ("dev", "criterion"), strict=True):
        assert sum(str(line.get_gid()).startswith(f"{name}-") for line in ax.lines) == 45


def test_without_its_tables_the_document_says_why_there_is_no_figure(copy, tmp_path):
    for path in (copy / "results").iterdir():
        if not path.name.startswith("e45_eat"):
            path.unlink()
    out = tmp_path / "paper.md"
    assert run(copy, "--out", out).exit_code == 1
    text = out.read_text(encoding="utf-8")
    assert "could not be drawn: results/e3_config_grid.csv does not exist." in text
    assert not list(tmp_path.glob("*.svg"))


# Damage


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "clone"
    shutil.copytree(artifacts(), folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return folder


def status_of(folder, figure_id):
    figure = next(each for each in figures() if each.id == figure_id)
    return check_figure(figure, Artifacts(folder))


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_a_changed_number_and_missing_files_are_named(copy):
    for path in (copy / "results").iterdir():
        if "eat" not in path.name:
            path.unlink()  # what is left takes a moment only
    row = "eval,Polisher,ldn-ratio-K1,"
    edit(copy / "results" / "e45_eat_per_machine.csv", f"{row}70.9", f"{row}90.9")
    result = run(copy)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "Not as expected - Section" in text  # differences come first
    assert "Table II, oracle, EAT: printed 59.76, recomputed 60." in text
    assert "results/e45_eat_grid.csv says 59.7621" in text
    assert re.search(r"results/e6_efficiency.txt does not exist. \d+ values need it.", text)


CLIPS = "release/scores/raw-k1/dev/anomaly_score_fan_section_00_test.csv"
LOUD, QUIET = (f"source_test_anomaly_0000_n_B.wav,{score}" for score in ("0.0438430309", "0.0001"))


@pytest.mark.parametrize(
    ("file", "old", "new", "figure", "note"),
    [
        # a metric that no figure prints, and a clip's score
        ("results/rep_2024_per_machine.csv", "zscore-soft-k4,85.0,74.5", "zscore-soft-k4,90.0,74.5",
         "artifacts.grid-2024", "zscore-soft-k4"),
        (CLIPS, LOUD, QUIET, "artifacts.clips", "fan raw-k1"),
        (CLIPS, LOUD, QUIET, "appendix.fan.raw-k1.auc_source", ""),
        # what the authors recorded
        ("results/stats_yearly.json", "0.696", "0.896", "artifacts.yearly", "2023 / criterion"),
        ("results/stats_e8_2026.json", "4.39", "2.39", "artifacts.forward",
         "ch0 / delta_guarded_vs_dev / ci95"),
        ("results/e3_seed_stability.txt", "omega=59.34", "omega=59.94", "artifacts.seeds",
         "seed 7: 59.94"),
        ("results/fpr_coverage.csv", "daco-m0,0.26", "daco-m0,0.46", "artifacts.coverage",
         "bearing at 0.1"),
        ("results/e2_dev.csv", "fan,daco-m30,58.3", "fan,daco-m30,59.3", "artifacts.e1-e2",
         "fan daco-m30"),
        # the hash of a frozen file
        ("results/prereg2026_grid.csv", "\n", "\n\n", "frozen.prereg2026_grid", ""),
    ],
)  # fmt: skip
def test_a_changed_value_is_found(copy, file, old, new, figure, note):
    edit(copy / file, old, new)
    found = status_of(copy, figure)
    assert (found.status, found.expected) == (Status.DIFFERS, False)
    assert note in found.note


def test_an_erratum_that_is_not_one_any_more_is_unexpected(copy):
    path = copy / "results" / "e45_beats_grid.csv"
    edit(path, "raw-k1,58.7259,55.8287", "raw-k1,58.7259,54.0000")  # spreads the scores: sd 2.1
    found = status_of(copy, "table2.random.beats-sd")
    assert (found.status, found.expected) == (Status.OK, False)
    assert "erratum 5" in found.note


@pytest.mark.parametrize(
    ("file", "figure", "told"),
    [
        ("results/e3_config_grid.csv", "e3.rho-criterion", "of 45 rows|damaged"),
        ("results/rep_2023_per_machine.csv", "table4.per-machine-blind.2023", "rows|damaged"),
        ("results/stats_intervals.json", "e3.gain-clips", "cannot be read"),
        ("results/e3_seed_stability.txt", "e3.blind-sd", "damaged"),
        ("results/fpr_coverage.csv", "e2.imbalance-raw", "of 300 rows|damaged"),
        ("results/diagnostics.csv", "fig2.rho", "of 15 rows|damaged"),
        (CLIPS, "appendix.fan.raw-k1.pauc", "of 200 clips|damaged"),
    ],
)
def test_a_file_that_was_cut_off_is_named_and_not_used(copy, file, figure, told):
    path = copy / file
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    found = status_of(copy, figure)
    assert found.status is Status.MISSING
    assert not found.expected
    assert file in found.note
    assert re.search(told, found.note)
