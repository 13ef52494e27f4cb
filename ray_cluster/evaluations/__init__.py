"""Evaluator processes, beside a sweep and as a job of their own."""
