"""A study of two arms and two seeds, of two cycles each."""

TINY = """
name: tiny
title: Two strategies
base: {train.epochs: 1, train.objectives: []}
cycles: 2
axes: {score.strategy.name: [random, entropy]}
seeds: [0, 1]
"""
