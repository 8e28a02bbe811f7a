"""The record that the archiving run lands meets its contract, whatever the form of its times."""

import json

import pytest
from tests.consumer.judge.test_native import FORMS

from consumer.app.archive import _sample
from consumer.judge.batch import Judge
from lakeproof.contracts import Contract, Field, PrimitiveType, TimeForm


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_sample_of_a_timestamp_has_its_form(form: TimeForm) -> None:
    field = Field("at", PrimitiveType.TIMESTAMP, required=True, time=form)
    (judged,) = Judge(Contract("s", "1", "", (field,), (), "at")).judge(json.dumps({"at": _sample(field)}).encode())
    assert (len(judged.good), len(judged.bad)) == (1, 0)
