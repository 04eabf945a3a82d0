"""Tests of the tables of a lake."""
