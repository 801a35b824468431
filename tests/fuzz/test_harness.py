"""The harness notices all that a fuzz test is for, and names the input that did it."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from fuzz.harness import COUNTS, HERE, Child
from fuzz.mutator import BYTE_MUTATIONS, KINDS, mutated, seeds


@pytest.fixture(scope="module")
def child():
    with Child("misbehaviour", seconds=0.3) as started:
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
        ("loop", "died of SIGPROF"),
        ("sleep", "died of SIGALRM"),
    ],
)
def test_what_must_not_happen_is_noticed(child, deed, word):
    assert word in child.feed("misbehaviour", deed.encode())


def test_a_dead_process_is_told_with_its_stack_and_the_next_input_has_another(child):
    assert "in misbehave" in child.feed("misbehaviour", b"loop")
    assert child.feed("misbehaviour", b"") == "accepted"


def test_an_input_that_kills_is_named_and_all_others_are_tried(child):
    found = child.run("misbehaviour", 0, 20)  # number 7 crashes
    assert found.outcomes == {"accepted": 19, "died": 1}
    assert len(found.failures) == 1
    assert found.failures[0].startswith("misbehaviour 7: the process died of SIGSEGV")


def test_there_are_twenty_thousand_inputs_of_the_four_kinds():
    assert sum(COUNTS[kind] for kind in ("wav", "flac", "model", "manifest")) >= 10_000
    assert set(COUNTS) == set(KINDS)


@pytest.mark.parametrize("kind", ["flac", "ogg", "model", "npz"])
def test_an_input_can_be_written_again(kind, tmp_path):
    script = [sys.executable, HERE / "mutator.py", kind, "17", tmp_path / "out"]
    subprocess.run(script, check=True)
    same = (tmp_path / "out").read_bytes() == mutated(kind, 17)  # a diff of bytes helps nobody
    assert same


@pytest.mark.parametrize("mutation", BYTE_MUTATIONS, ids=lambda each: each.__name__)
def test_a_mutation_can_take_anything(mutation):
    for data in (b"", b"a", seeds("wav")[0]):
        for seed in range(20):
            mutation(Random(seed), data)
