"""Errors, atomic files, locks and typed parameters: everything that decides no byte of a result."""
