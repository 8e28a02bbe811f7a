"""The record that the archiving run lands meets the contract of the template, so it reaches every table."""

import json
from pathlib import Path

from consumer.app.archive import STREAM, good_record, lake_of_template
from consumer.scope import scope_of_run
from lakeproof.judge.batch import Judge
from lakeproof.settings import settings_of


def test_the_record_is_good_and_silver_and_gold_follow(tmp_path: Path) -> None:
    scope = scope_of_run(lake_of_template(tmp_path, settings_of({})), [STREAM], None)
    (judged,) = Judge(scope.contracts[STREAM]).judge(json.dumps([good_record()]).encode())
    assert (len(judged.good), len(judged.bad)) == (1, 0)
    assert scope.silver
    assert scope.products
