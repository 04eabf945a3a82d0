"""Fuzzing of everything that reads what others wrote: no input ends in a traceback, takes long, or takes much memory.

``tests/e2e/test_fuzz.py`` runs a few hundred inputs; ``make fuzz N=100000`` runs many. See :mod:`tests.fuzz.drive`.
"""
