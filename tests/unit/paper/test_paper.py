"""The printed figures as data, their recipes, and the rule that compares the two."""

from __future__ import annotations

import inspect
import zipfile

import pytest
from shared_data import PUBLISHED

from daco.errors import DataError
from daco.paper import PLACES, Figure, Status, check_paper, errata, figures
from daco.paper.artifacts import Artifacts, open_artifacts
from daco.paper.check import RECIPES, Finding, agrees, check_figure
from daco.paper.printed import Recomputed, decimals, number


def printed(text, **fields):
    return Figure("id", "Table II", "what", text, **fields)


# The data


def test_every_figure_has_its_own_id_and_a_known_place():
    assert len({figure.id for figure in figures()}) == len(figures())
    assert list(dict.fromkeys(figure.place for figure in figures())) == [p.name for p in PLACES]


def test_every_figure_has_a_recipe_or_says_why_not():
    for figure in figures():
        outside = (Status.AUDIO, Status.CODE, Status.TEAMS, Status.CITED)
        assert (figure.standing in outside and figure.note != "") != bool(figure.recompute), (
            figure.id
        )
        assert figure.rule in ("", "name", "below", "above", "at least"), figure.id


def test_every_recipe_exists_and_takes_its_words():
    used = set()
    for figure in figures():
        if figure.recompute:
            name, *words = figure.recompute.split()
            inspect.signature(RECIPES[name]).bind(None, *words)
            used.add(name)
            if name == "over":
                inspect.signature(RECIPES[words[2]]).bind(None, *words[3:])
                used.add(words[2])
    assert used == set(RECIPES)


def test_a_figure_without_a_name_says_numbers():
    for figure in figures():
        assert bool(figure.numbers) == (figure.rule != "name"), figure.id


def test_errata_are_numbered_and_every_reference_exists():
    known = [erratum.number for erratum in errata()]
    assert known == list(range(1, 17))
    assert {figure.erratum for figure in figures()} - {None} <= set(known)


def test_a_repeated_figure_is_printed_alike():
    """One quantity to the same digits in two places is one text, or one was mistyped."""
    seen = {}
    for figure in figures():
        if figure.recompute and figure.rule == "" and figure.erratum is None:
            for text in figure.numbers:
                key = figure.recompute, figure.numbers.index(text), decimals(text)
                assert seen.setdefault(key, float(text)) == float(text), figure.id


# The rule

BOUND = {"value": "1"}
NAME = {"value": "conf-soft-m0-k1", "rule": "name"}


@pytest.mark.parametrize(
    ("figure", "found", "holds"),
    [
        # half a unit of the last printed digit
        (printed("55.83"), number(55.8287), True),
        (printed("55.83"), number(55.8351), False),
        (printed("2.1"), number(2.045), False),
        (printed("2.1"), number(2.05), True),
        (printed("45"), number(45), True),
        (printed("45"), number(44), False),
        (printed("-0.10"), number(-0.0953), True),
        (printed("-0.10"), number(0.0953), False),
        (printed("55.83"), number(float("nan")), False),
        # an argued error is added to it
        (printed("0.83"), number(0.82), False),
        (printed("0.83"), number(0.82, error=0.006), True),
        (printed("[0.83,0.95]"), number(0.82, 0.90, error=0.006), False),
        # as many numbers as are printed
        (printed("200"), Recomputed((200.0, 199.0)), False),
        (printed("[0.1,0.2]"), number(0.1), False),
        # bounds
        (printed("well under a point", rule="below", **BOUND), number(0.9), True),
        (printed("well under a point", rule="below", **BOUND), number(1.0), False),
        (printed("over a point", rule="above", **BOUND), number(1.1), True),
        (printed("over a point", rule="above", **BOUND), number(1.0), False),
        (printed("a point", rule="at least", **BOUND), number(1.0), True),
        (printed("a point", rule="at least", **BOUND), number(0.9), False),
        # names
        (printed("conf. soft m=0, k=1", **NAME), Recomputed(name="conf-soft-m0-k1"), True),
        (printed("conf. soft m=0, k=1", **NAME), Recomputed(name="conf-soft-m0-k2"), False),
    ],
)
def test_when_a_recomputed_value_agrees_with_the_printed_one(figure, found, holds):
    assert agrees(figure, found) is holds


@pytest.mark.parametrize(
    ("status", "erratum", "expected"),
    [
        (Status.OK, None, True),
        (Status.DIFFERS, 5, True),
        (Status.DIFFERS, None, False),
        (Status.OK, 5, False),
        (Status.MISSING, None, False),
        (Status.MISSING, 5, False),
    ],
)
def test_a_figure_with_an_erratum_is_expected_to_differ(status, erratum, expected):
    assert Finding(printed("2.1", erratum=erratum), status, None).expected is expected


@pytest.mark.parametrize(
    ("text", "found", "shown"),
    [
        ("55.83", number(55.8287), "55.829"),
        ("[+0.83,+0.95]", number(0.8213, 0.9517), "[+0.821,+0.952]"),
        ("59.3–59.6", number(59.2719, 59.5508), "59.27–59.55"),
        ("45", number(45), "45"),
        ("90.0", number(90), "90.0"),
        ("0.000001", number(1.2e-7), "1.2e-07"),
        ("200", Recomputed((199.0, 200.0)), "199, 200"),
    ],
)
def test_the_recomputed_value_takes_the_printed_form(text, found, shown):
    assert Finding(printed(text), Status.OK, found).text == shown


# Damage


def test_a_folder_without_artifacts_is_refused(tmp_path):
    with pytest.raises(DataError, match="polestvr/daco-experiments"):
        check_paper(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        check_paper(tmp_path / "nowhere")


def test_a_zip_file_with_the_folder_of_another_system_beside_it_is_read(tmp_path):
    path = tmp_path / "copy.zip"
    path.write_bytes(PUBLISHED.read_bytes())
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("__MACOSX/._README.md", "")
    assert (open_artifacts(path).root / "results").is_dir()


def test_a_zip_file_is_read_and_leaves_nothing_behind():
    artifacts = open_artifacts(PUBLISHED)  # one folder in it, as downloads from GitHub have
    root = artifacts.root
    assert (root / "results" / "e3_config_grid.csv").is_file()
    del artifacts
    assert not root.parent.exists()


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.zip"
    path.write_bytes(b"config,dev_omega")
    with pytest.raises(DataError, match=r"other\.zip cannot be read as a ZIP file.*polestvr/daco"):
        check_paper(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("notes/readme.txt", "nothing of the paper")
    with pytest.raises(DataError, match=r"other\.zip holds none of the paper's artifacts.*polest"):
        check_paper(path)


def test_without_artifacts_every_figure_is_missing_and_none_breaks(tmp_path):
    empty = Artifacts(tmp_path)
    simulated = ("floor",)  # needs no file
    for figure in figures():
        if figure.recompute and not figure.recompute.startswith(simulated):
            found = check_figure(figure, empty)
            assert found.status is Status.MISSING, figure.id
            assert "does not exist." in found.note
            assert not found.expected
