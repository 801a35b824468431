"""Banks of up to millions of clips: their neighbours are searched, not kept as distances.

``daco.NormalBank(X, domains, index="flat")`` makes an :class:`IndexedBank`. ``flat`` compares every
clip and is exact; :class:`IVF` and :class:`HNSW` look at a part of the bank, find most of the
nearest clips, and need the extra ``index``.
"""

from __future__ import annotations

from daco.method.bigbank.bank import IndexedBank
from daco.method.bigbank.options import HNSW, IVF, Flat
from daco.method.bigbank.recall import Recall

__all__ = ["HNSW", "IVF", "Flat", "IndexedBank", "Recall"]
