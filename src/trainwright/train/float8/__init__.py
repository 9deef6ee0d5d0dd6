"""Linear layers whose three products run in float8; one file per recipe, which says how values are scaled."""
