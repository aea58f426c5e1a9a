"""Fixtures of real parts for all areas, and the rule that a must-run test may not be skipped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

import rig

hypothesis.settings.register_profile(
    # a busy machine is slow, and that is no fault of a law
    "gpugrant",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", parent=hypothesis.settings.get_profile("gpugrant"), max_examples=1000)
# The same examples in every run: what is found by chance is found with --hypothesis-profile=explore and by hack/fuzz,
# and becomes an example then.
hypothesis.settings.register_profile("same", parent=hypothesis.settings.get_profile("gpugrant"), derandomize=True)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--must-run", action="store_true", help="a skipped test that is marked must_run fails")


def pytest_configure() -> None:
    # A run that is told to end goes through its fixtures: daemons and systems that it started end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]  # what pluggy sends in
    if report.skipped and item.config.getoption("--must-run") and item.get_closest_marker("must_run"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"this test must run and was skipped: {why}"


@pytest.fixture(scope="session")
def daemons() -> Iterator[rig.Daemons]:
    """Starts sealed Docker daemons: `daemons.start(name, engine="28")`; all are stopped with the session."""
    if os.geteuid() != 0:
        pytest.skip("a Docker daemon needs root")
    made = rig.Daemons()
    yield made
    made.close()


@pytest.fixture(scope="session", params=["26", "28"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each generation of Docker that is tested against."""
    return str(request.param)


@pytest.fixture(scope="session")
def daemon(daemons: rig.Daemons, engine: str) -> rig.Daemon:
    """One sealed daemon of each generation, shared by the session: leave no container behind."""
    return daemons.start(f"shared-{engine}", engine=engine)
