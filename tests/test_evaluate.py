"""The gate of the built-in planner, on sentences that were written before its code."""
from __future__ import annotations

import os

import pytest

import evaluate as evaluation
import knaif as nk


def test_the_built_in_planner_acts_wrongly_on_few_sentences_and_never_destroys():
    counts = evaluation.total(evaluation.measure())
    assert counts["rows"] >= 120 and counts["rows"] - counts["plans"] >= counts["rows"] // 4
    assert counts["destructive"] == 0, counts
    assert counts["bad"] <= nk.PLANNER_BAD_RATE, counts
    assert counts["accuracy"] >= 0.65, counts


def test_rows_say_what_they_are_for():
    for name in evaluation.APPS:
        assert len(evaluation.load(name)) >= 40
    assert os.path.exists(os.path.join(evaluation.ROOT, "tests", "data", "planner", "README.txt"))


@pytest.mark.parametrize("row", [{}, {"utterance": "x"}, {"utterance": 5, "refuse": True}, "x",
                                 {"utterance": "x", "plan": [], "refuse": True}])
def test_a_row_that_is_none_is_refused(row):
    app = nk.App("none", expose=("agent",))
    with pytest.raises(nk.Error) as caught:
        nk.evaluate(app, [row])
    assert caught.value.code == "BAD_REQUEST" and "row 1" in caught.value.message
