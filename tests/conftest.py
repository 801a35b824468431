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


@pytest.fixture(scope="session")
def published():
    """The files that the authors of the paper published."""
    from reproduction.published import open_published

    if not shared_data.PUBLISHED.exists():
        pytest.skip(f"needs the authors' files: {shared_data.PUBLISHED} is not there")
    return open_published(shared_data.PUBLISHED)


def pytest_collection_modifyitems(config, items):
    """Begin with the Ray cluster; keep one test of those of a file that lack the same data.

    The first tests of a worker are not taken over by others: there is one cluster, and it works
    while the other workers go on. The test that is kept is skipped and says how many it stands for.
    """
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)
    lacking = {}
    for item in items:
        needed = [mark.args for mark in item.iter_markers("shared")]
        missing = [parts for parts in needed if not shared_data.path_of(*parts).exists()]
        if missing:
            lacking.setdefault((item.path, missing[0]), []).append(item)
    for (_, parts), group in lacking.items():
        reason = f"{len(group)} tests: {shared_data.reason(*parts)}"
        group[0].add_marker(pytest.mark.skip(reason=reason))
    left_out = {id(item) for group in lacking.values() for item in group[1:]}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]


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
