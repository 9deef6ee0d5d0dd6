"""The live view of jobs and runs: in the terminal, as plain lines, and as a page on loopback."""
