"""The command line: one short file per verb. It parses words, calls the library and prints."""
