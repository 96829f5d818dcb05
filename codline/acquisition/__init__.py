"""Algorithms that several acquisition strategies share: arrays in, arrays out."""
