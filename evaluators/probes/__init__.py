"""Probes: what frozen features of a model know, by fitting something small on them."""

from evaluators.probes.probe import KnnProbe, LinearProbe, Probe, RidgeProbe

__all__ = ["KnnProbe", "LinearProbe", "Probe", "RidgeProbe"]
