"""Training jobs as data: one short file each."""
