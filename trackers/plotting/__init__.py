"""Pictures of runs: what is drawn (panels), and how: an image, a page for a browser, a terminal."""
