"""Step time, memory, communication, cost and goodput, before anybody pays."""
