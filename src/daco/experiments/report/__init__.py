"""The report: a summary as plain JSON, and one standalone HTML page rendered from it.

``table`` comes first, then ``choice_tables`` and ``machine_tables``, ``headline`` (the first
screen and its sentences), ``summary``, ``pictures`` and ``page``.
"""

from daco.experiments.report.page import render_html, write_report
from daco.experiments.report.summary import summarise

__all__ = ["render_html", "summarise", "write_report"]
