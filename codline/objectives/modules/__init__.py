"""Auxiliary modules: the part of the objectives that needs torch, imported when training starts."""
