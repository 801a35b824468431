"""The harness notices all that a fuzz test is for, and names the input that did it."""

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
        ("nap", "s by the clock, 3 times"),
        ("crash", "died of SIGSEGV"),
        ("loop", "died of SIG"),  # which of the two depends on what else the computer does
        ("sleep", "died of SIGALRM"),
    ],
)
def test_what_must_not_happen_is_noticed(child, deed, word):
    assert word in child.feed("misbehaviour", deed.encode())


def test_an_input_that_kills_is_named_and_all_others_are_tried(child):
    found = child.run("misbehaviour", 0, 20)  # number 7 crashes
    assert found.outcomes == {"accepted": 19, "died": 1}
    assert len(found.failures) == 1
    assert found.failures[0].startswith("misbehaviour 7: the process died of SIGSEGV")
