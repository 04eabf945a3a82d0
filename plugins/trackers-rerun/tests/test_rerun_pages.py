"""docs/reproducing.md, whose commands are this distribution's."""

from __future__ import annotations

from tests import ROOT, again
from tests.e2e import test_docs

test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/reproducing.md"])
