"""Evaluates all checkpoints of a trial, and tells when it begins: `python soak_evaluator.py TRIAL`."""

from __future__ import annotations

import sys

import evaluators

evaluators.CheckpointEvaluator(trust=["tests"]).open(sys.argv[1])
print("ready", flush=True)
evaluators.evaluate_run(sys.argv[1], step="all", trust=["tests"])
