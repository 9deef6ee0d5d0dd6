"""The rules, one file per topic. Every module of this package is loaded: adding a topic is adding a file."""
