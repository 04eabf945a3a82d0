"""Chaos: real training runs, killed, cut off and re-synced at random, then every store audited.

``python -m tests.chaos --rounds 20 --seed 1`` plays rounds and prints one table; a round's own seed repeats it.
"""
