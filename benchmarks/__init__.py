"""Benchmarks: compare codline with other implementations of the same computation, as ratios."""
