"""The plug-ins' tests run as the core's do: each in a home of its own, with no process left behind."""

pytest_plugins = ["tests.conftest"]
