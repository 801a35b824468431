"""Remote paths behave like `PurePosixPath`, and their options stay with them."""

from __future__ import annotations

import pickle
from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from daco.files.remote import parse_location

names = st.text(
    st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: not name.endswith("."))  # whose suffix newer versions of Python change
plain = names.filter(lambda name: "?" not in name)
queries = st.sampled_from(["", "?region=eu-west-1", "?scheme=http&endpoint_override=10.0.0.1:9000"])
roots = st.builds(
    lambda folders, query: parse_location("/".join(["s3://plant", *folders]) + query),
    st.lists(plain, max_size=3),
    queries,
)


@given(roots, st.lists(names, min_size=1, max_size=4), st.sampled_from([".parquet", ".x.json"]))
def test_names_and_parents_are_those_of_a_path(root, folders, ending):
    there = root
    for name in folders:
        there = there / name
    path = PurePosixPath("/", root.key, *folders)
    assert f"/{there.key}" == str(path)
    assert (there.name, there.suffix) == (path.name, path.suffix)
    assert there == root / "/".join(folders)
    named = there.with_name(f"x{ending}")
    assert named == there.parent / f"x{ending}"
    for each in (there, there.parent, named, there / "..", there / "a" / "b"):
        assert (each.protocol, each.authority, each.query) == ("s3", "plant", root.query)
    assert pickle.loads(pickle.dumps(there)) == there
    for _ in folders:
        there = there.parent
    assert there == root


@given(roots, st.lists(plain, min_size=1, max_size=4))
def test_a_text_is_read_back(root, folders):
    there = root / "/".join(folders)
    assert parse_location(str(there) + root.query) == there
    assert str(parse_location(str(there))) == str(there)


@given(roots, names, names)
def test_dots_lead_where_they_lead_on_a_disk(root, one, two):
    assert root / one / ".." / two == root / two
    assert root / f"{one}/../{two}" == root / two
    assert root / f"./{one}//{two}/." == root / one / two
