"""The harness notices all that a fuzz test is for, and goes on after it."""

from __future__ import annotations

import pytest
from fuzz.harness import Child


@pytest.fixture(scope="module")
def child():
    with Child("misbehaviour", seconds=0.15) as started:
        yield started


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        ("", "accepted"),
        ("refuse", "DacoError"),
        ("raise", "KeyError: 'a mistake of ours'"),
        ("allocate", "MemoryError"),
        ("hide", "ran out of memory, said as: quietly"),
        ("crash", "died of SIGSEGV"),
        ("loop", "died of SIG"),  # which of the two depends on what else the computer does
        ("sleep", "died of SIGALRM"),
    ],
)
def test_what_must_not_happen_is_noticed(child, deed, word):
    outcome = child.feed("misbehaviour", deed.encode())
    assert word in outcome
    assert outcome.startswith("!") == (word not in ("accepted", "DacoError"))
