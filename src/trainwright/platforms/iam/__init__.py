"""Which permissions a plan needs: for the person who builds it, and for its nodes."""
