"""Measure the built-in planner on sentences it was not written with: `make eval`.

tests/data/planner/unseen.jsonl was written before the planner's code, and nothing is tuned to it. Its rows name one
of three examples; dev.jsonl, dev2.jsonl and held.jsonl are what the planner was made with. Nothing is ever executed.
"""
from __future__ import annotations

import importlib
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APPS = ("clock", "tasks", "media")
COUNTS = ("rows", "plans", "exact", "refused", "missed", "wrong", "acted", "destructive")


def load(name, file="unseen.jsonl"):
    """Return the rows of one example."""
    with open(os.path.join(ROOT, "tests", "data", "planner", file), encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row.get("app") == name]


def measure(file="unseen.jsonl"):
    """Return {example: report}."""
    sys.path[:0] = [folder for folder in (ROOT, os.path.join(ROOT, "examples")) if folder not in sys.path]
    import knaif

    return {name: knaif.evaluate(importlib.import_module(name).app, load(name, file)) for name in APPS}


def total(reports):
    """Return the counts of all reports together, with accuracy and bad as parts of them."""
    counts = {word: sum(report[word] for report in reports.values()) for word in COUNTS}
    counts["accuracy"] = counts["exact"] / counts["plans"]
    counts["bad"] = (counts["wrong"] + counts["acted"]) / counts["rows"]
    return counts


def main():
    reports = measure(*sys.argv[1:2])
    for name, report in reports.items():
        print("== %s\n%s\n" % (name, report["text"]))
    print("all: %s" % json.dumps(total(reports)))


if __name__ == "__main__":
    main()
