"""The command line: one short file a verb. It parses words, calls the library and prints."""
