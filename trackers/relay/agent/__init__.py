"""The host agent: a process of one user on one machine whose forks are relays of runs."""
