"""The plan: every file that would be deployed, what it would cost, and what would change."""
