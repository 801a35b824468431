"""``daco paper`` on the authors' artifacts, and its figures against the paper's own text."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
import typer
from shared_data import ROOT, shared
from typer.testing import CliRunner

from daco.commands.paper import paper
from daco.published import PLACES, Status, errata, figures
from daco.published.artifacts import Artifacts
from daco.published.check import check_figure
from daco.published.printed import numbers_in

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
    return json.loads(result.stdout) | {"markdown": out.read_text(encoding="utf-8")}


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
    assert printed["ok"] == 495
    assert printed["differs"] == printed["differs as an erratum says"] == 9
    assert printed["quantities"] >= 190  # each counted once, however often it is printed
    assert counts["beyond"]["ok"] == counts["beyond"]["figures"] == 88
    assert counts["unexpected"] == 0


def test_the_appendix_is_complete(found):
    values = [each for each in found.values() if each["place"] == "Appendix, machines"]
    assert len(values) == 135
    assert all(each["status"] == "ok" for each in values)


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


def test_errata_that_touch_none_have_their_evidence(found):
    assert found["erratum-4.table"]["text"] == "59.388"
    assert found["erratum-4.log"]["text"] == "59.160"
    assert found["erratum-8.agreement"]["text"] == "0.9870–1.0000"
    assert found["erratum-13.pick"]["recomputed"] == "zscore-hard-k2"
    assert found["erratum-15.p"]["recomputed"] == [pytest.approx(0.1338, abs=0.001)]


def test_the_forward_test_is_scored(found):
    assert found["forward.ch0.frozen-pick"]["recomputed"] == "ratio-hard-k2"
    assert found["forward.ch0.guarded"]["recomputed"] == [pytest.approx(58.97, abs=0.005)]
    assert found["forward.mix.rho-criterion"]["recomputed"] == [pytest.approx(0.84, abs=0.005)]
    assert found["frozen.prereg2026_grid"]["status"] == "ok"


def test_what_only_the_recordings_could_tell_says_so(found):
    assert found["e3.gain-clips"]["status"] == "needs audio"
    assert found["e3.gain-clips"]["recomputed"] == [2.51, 4.7]  # the authors' record
    assert found["e3.rank-dev"]["status"] == "not ours"
    assert found["e3.rank-dev"]["note"]


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

    marks = {
        "Abstract": (r"\begin{abstract}", r"\end{abstract}"),
        "Section I": (r"\label{sec:intro}", r"\label{sec:related}"),
        "Section III": (r"\label{sec:setting}", r"\label{sec:method}"),
        "Section IV": (r"\label{sec:method}", r"\label{sec:setup}"),
        "Section V": (r"\label{sec:setup}", r"\label{sec:results}"),
        "Section VI-A": (r"\label{sec:results-e1}", r"\label{sec:results-frontier}"),
        "Section VI-B": (r"\label{sec:results-frontier}", r"\label{sec:results-transfer}"),
        "Section VI-C": (r"\label{sec:results-transfer}", r"\label{sec:results-ablations}"),
        "Section VI-D": (r"\label{sec:results-ablations}", r"\label{sec:results-ldn}"),
        "Section VI-E": (r"\label{sec:results-ldn}", r"\label{sec:results-years}"),
        "Section VI-F": (r"\label{sec:results-years}", r"\label{sec:results-efficiency}"),
        "Section VI-G": (r"\label{sec:results-efficiency}", r"\label{sec:discussion}"),
        "Section VII": (r"\label{sec:discussion}", r"\label{sec:conclusion}"),
        "Section VIII": (r"\label{sec:conclusion}", None),
    }
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


@pytest.mark.parametrize(
    ("table", "first"),
    [("Table II", 1), ("Table III", 1), ("Table IV", 1), ("Table V", 1), ("Table I", 2)],
)
def test_tables_are_transcribed_cell_by_cell(places, table, first):
    """All numbers of the table's body, in its order: none left out, none out of place."""
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
    assert ours == wanted


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
    assert "135 of 135 ok; --all lists all" in words
    assert "Nothing unexpected." in words
    for erratum in errata():
        assert any(line.startswith(f"[{erratum.number}] ") for line in words)


def test_json(document, found):
    assert document["schema"] == 1
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


def change(path, row, points):
    """Add to the first metric of a row."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(row))
    fields = line.split(",")
    fields[3] = str(float(fields[3]) + points)
    edit(path, line, ",".join(fields))


def test_a_changed_number_and_missing_files_are_named(copy):
    for path in (copy / "results").iterdir():
        if "eat" not in path.name:
            path.unlink()  # what is left takes a moment only
    change(copy / "results" / "e45_eat_per_machine.csv", "eval,Polisher,ldn-ratio-K1,", 20)
    result = run(copy)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "Not as expected - Section" in text  # differences come first
    assert "Table II, oracle, EAT: printed 59.76, recomputed 60." in text
    assert "results/e45_eat_grid.csv says 59.7621" in text
    assert re.search(r"results/e6_efficiency.txt is not there. \d+ figures rest on it.", text)


def test_a_changed_metric_that_no_figure_prints_is_found_too(copy):
    change(copy / "results" / "rep_2024_per_machine.csv", "eval,Scanner,zscore-soft-k4,", 5)
    found = status_of(copy, "artifacts.grid-2024")
    assert found.status is Status.DIFFERS
    assert "zscore-soft-k4" in found.note


def test_a_changed_clip_score_changes_the_score_and_contradicts_the_table(copy):
    path = copy / "release" / "scores" / "raw-k1" / "dev" / "anomaly_score_fan_section_00_test.csv"
    edit(
        path,
        "source_test_anomaly_0000_n_B.wav,0.0438430309",
        "source_test_anomaly_0000_n_B.wav,0.0001",
    )
    assert status_of(copy, "artifacts.clips").status is Status.DIFFERS
    assert status_of(copy, "appendix.fan.raw-k1.auc_source").status is Status.DIFFERS


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "told"),
    [
        ("stats_yearly.json", "0.696", "0.896", "yearly", "2023 / criterion"),
        ("stats_e8_2026.json", "4.39", "2.39", "forward", "ch0 / delta_guarded_vs_dev / ci95"),
        ("e3_seed_stability.txt", "omega=59.34", "omega=59.94", "seeds", "seed 7: 59.94"),
        ("fpr_coverage.csv", "daco-m0,0.26", "daco-m0,0.46", "coverage", "bearing at 0.1"),
        ("e2_dev.csv", "fan,daco-m30,58.3", "fan,daco-m30,59.3", "e1-e2", "fan daco-m30"),
    ],
)
def test_a_changed_record_is_found(copy, file, old, new, check, told):
    edit(copy / "results" / file, old, new)
    found = status_of(copy, f"artifacts.{check}")
    assert (found.status, found.expected) == (Status.DIFFERS, False)
    assert told in found.note


def test_an_erratum_that_is_not_one_any_more_is_unexpected(copy):
    path = copy / "results" / "e45_beats_grid.csv"
    edit(path, "raw-k1,58.7259,55.8287", "raw-k1,58.7259,54.0000")  # spreads the scores: sd 2.1
    found = status_of(copy, "table2.random.beats-sd")
    assert (found.status, found.expected) == (Status.OK, False)
    assert "erratum 5" in found.note


def test_a_changed_frozen_file_is_seen_by_its_hash(copy):
    with (copy / "results" / "prereg2026_grid.csv").open("a") as file:
        file.write("\n")
    found = status_of(copy, "frozen.prereg2026_grid")
    assert (found.status, found.expected) == (Status.DIFFERS, False)


@pytest.mark.parametrize(
    ("file", "figure", "told"),
    [
        ("results/e3_config_grid.csv", "e3.rho-criterion", "of 45 configurations|damaged"),
        ("results/rep_2023_per_machine.csv", "table4.per-machine-blind.2023", "damaged|eval rows"),
        ("results/stats_intervals.json", "e3.gain-clips", "is not JSON"),
        ("results/e3_seed_stability.txt", "e3.blind-sd", "damaged"),
        ("results/fpr_coverage.csv", "e2.imbalance-raw", "of 300 rows|damaged"),
        ("results/diagnostics.csv", "fig2.rho", "of 15 machines|damaged"),
        (
            "release/scores/raw-k1/dev/anomaly_score_fan_section_00_test.csv",
            "appendix.fan.raw-k1.pauc",
            "of 200 clips|damaged",
        ),
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
