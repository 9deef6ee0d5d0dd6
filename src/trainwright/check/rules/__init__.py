"""The rules, one file a family. The modules are found by name: adding a family is adding a file."""
