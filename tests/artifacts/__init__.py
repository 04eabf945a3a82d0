"""Versions of artifacts over a project's runs."""
