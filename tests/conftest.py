"""Settings of the whole suite."""

from __future__ import annotations

import os

# scikit-learn skips one of its estimator checks without it; SciPy reads it at import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

from hypothesis import HealthCheck, settings

# The same examples every time in CI; new ones on every run elsewhere.
settings.register_profile(
    "default",
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")
