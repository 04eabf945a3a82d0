"""Runs for agents: tools over every source, and the server that offers them by the Model Context Protocol."""
