"""The writer: committed before it is answered, many at once, and one at fault harms no other."""

from __future__ import annotations

import asyncio

import pytest
from stores import START, verdict

from daco.monitoring.store import NewClip, Store
from daco.monitoring.store.writing import Writer

pytestmark = pytest.mark.anyio


def clip(number):
    return NewClip(verdict(name=f"{number}.wav"), "press", START)


@pytest.fixture
def store(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/daco.db") as opened:
        yield opened


async def test_an_answer_is_a_row_and_many_share_a_commit(store, monkeypatch):
    sizes, commits = [], []
    add_many = Store.add_many

    def counted(self, new):
        sizes.append(len(new))
        return add_many(self, new)

    async def one(number):
        added = await writer.add(clip(number))
        assert store.clip(added.clip_id).name == f"{number}.wav"
        return added.clip_id

    monkeypatch.setattr(Store, "add_many", counted)
    writer = Writer(store.add_many, lambda: commits.append(1))
    ids = await asyncio.gather(*(one(number) for number in range(300)))
    await writer.close()
    assert len(commits) == len(sizes)
    assert sorted(ids) == list(range(1, 301))
    assert sum(sizes) == 300
    assert len(sizes) < 100


async def test_one_that_cannot_be_stored_takes_no_other_with_it(store):
    bad = clip(2)
    object.__setattr__(bad.verdict, "score", object())  # no check has seen it
    writer = Writer(store.add_many)
    waiting = [writer.add(clip(1)), writer.add(bad), writer.add(clip(3))]
    first, failed, third = await asyncio.gather(*waiting, return_exceptions=True)
    await writer.close()
    assert isinstance(failed, Exception)
    assert [each.name for each in store.clips("press")] == ["3.wav", "1.wav"]
    assert {first.clip_id, third.clip_id} == {each.id for each in store.clips("press")}


async def test_what_waits_is_committed_before_the_end(store):
    writer = Writer(store.add_many)
    waiting = [asyncio.ensure_future(writer.add(clip(number))) for number in range(20)]
    await asyncio.sleep(0)
    await writer.close()
    assert len(await asyncio.gather(*waiting)) == 20
    assert len(store.clips("press")) == 20
