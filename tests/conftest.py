"""Settings of the whole suite."""

from __future__ import annotations

import os

# scikit-learn skips one of its estimator checks without it; SciPy reads it at import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
import shared_data
from hypothesis import HealthCheck, settings

# The same examples on every computer: what `make test` says does not depend on luck.
settings.register_profile(
    "default",
    derandomize=True,
    max_examples=50,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples on every run: `make fuzz`.
settings.register_profile(
    "fuzz", settings.get_profile("default"), derandomize=False, max_examples=200, print_blob=True
)
settings.load_profile("default")

collect_ignore_glob = ["golden/*/make.py"]  # they import packages that the project does not use


@pytest.fixture(autouse=True)
def _no_width(monkeypatch):
    """Let no width of the caller's terminal, or of another test, wrap what a command prints."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """List tests that lack the same data in one line, wherever they asked for it."""
    report = yield
    skipped = report.skipped and isinstance(report.longrepr, tuple)  # an xfail has no reason there
    if skipped and str(report.longrepr[2]).endswith(shared_data.WHERE):
        report.longrepr = (shared_data.__file__, 1, report.longrepr[2])
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail a run that skips more tests than ``$DACO_MOST_SKIPPED``, where that is set."""
    most = os.environ.get("DACO_MOST_SKIPPED")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if most is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped > int(most):
        reporter.write_line(f"\n{skipped} tests were skipped; at most {most} may be.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
