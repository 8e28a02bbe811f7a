"""Samples and anomalies of readings drawn by Hypothesis equal the plain model, with crashes in between."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.consumer.crashes import crash_before
from tests.consumer.lake import SessionOf
from tests.consumer.layers.samples.lakes import (
    BY_WINDOW,
    NOON,
    ROOT,
    SECOND,
    TEXT,
    Silver,
    check,
    fill,
    sensors_lake,
    write_samples,
)
from tests.selection import examples

from consumer.layers.samples.reading import Reading
from lakeproof.errors import LakeproofError
from lakeproof.settings import settings_of

pytestmark = pytest.mark.spark

# Tenths of a second before "now": in order and out of order, at the horizon and behind it.
READINGS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 50), st.integers(250, 700)),
        st.sampled_from("abc"),
        st.sampled_from([-2.0, 0.0, 1.0, 1.0, 2.5, 800.0]),
    ),
    max_size=12,
)


@dataclass(frozen=True)
class Round:
    """Silver keeps commits of one or more micro-batches, then samples are taken, with or without a crash first.

    Parameters
    ----------
    commits
        For each commit, the seconds that pass before it, and its micro-batches.
    crash
        The append before which the consumer crashes; None for no crash.
    """

    commits: list[tuple[int, list[list[tuple[int, str, float]]]]]
    crash: int | None


ROUNDS = st.lists(
    st.builds(
        Round,
        st.lists(
            st.tuples(st.sampled_from([1, 3, 20, 30, 45, 130]), st.lists(READINGS, min_size=1, max_size=3)),
            min_size=1,
            max_size=2,
        ),
        st.sampled_from([None, None, 0, 1]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.long
@pytest.mark.parametrize("text", [TEXT, BY_WINDOW], ids=["by device", "by window"])
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
@given(rounds=ROUNDS)
def test_drawn_readings_are_as_the_model_says_over_crashes(
    session_of: SessionOf, monkeypatch: pytest.MonkeyPatch, text: str, rounds: list[Round]
) -> None:
    with TemporaryDirectory() as folder:
        own = {"LAKE_HOME": f"{folder}/lake", "LAKE_CONTRACTS": ROOT / "contracts"}
        lake = sensors_lake(settings_of(own | {"LAKE_JARS": ROOT / "target" / "jars" / "spark"}), Path(folder))
        session, samples, now = session_of(lake), write_samples(lake, text), 0
        silver = Silver(session, lake)
        for each in rounds:
            for seconds, drawn in each.commits:
                now += seconds * SECOND
                silver.keep(*([Reading(NOON + now - ago * SECOND // 10, *what) for ago, *what in one] for one in drawn))
            with monkeypatch.context() as patch:
                if each.crash is not None:
                    crash_before(patch)(each.crash)
                try:
                    fill(session, lake, samples)
                except LakeproofError as error:
                    if error.message != "crashed, as asked":
                        raise
            fill(session, lake, samples)
            check(lake, silver, samples)
            assert fill(session, lake, samples) == 0
