"""One training as the user sees it: submitted, followed, listed, resumed, drilled."""
