"""Posts share memory: one that must wait is told so, and so is one that never fits."""

from http import HTTPStatus

import pytest

from collector.answers import Refusal
from collector.budget import Budget


def test_a_post_that_does_not_fit_beside_others_may_be_sent_again() -> None:
    budget = Budget(100)
    with budget.share() as one, budget.share() as other:
        one.take(60)
        with pytest.raises(Refusal) as refused:
            other.take(60)
        assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
    assert budget.used == 0


def test_a_post_that_fits_into_no_queue_is_not_told_to_try_again() -> None:
    budget = Budget(100)
    with budget.share() as share:
        share.take(60)
        with pytest.raises(Refusal) as refused:
            share.take(60)
    assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert "send smaller posts" in refused.value.problem.detail.lower()
    assert budget.used == 0
