"""Training data: text is turned into token shards once (`prepare`); a deterministic loader reads them."""
