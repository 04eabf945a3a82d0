"""Tests that break things: processes, servers, disks."""
