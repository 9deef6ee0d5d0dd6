"""Training data: text becomes token shards once (`prepare`), and a deterministic loader serves them ever after."""
