"""How jobs are started: launch scripts, their variables and options, and files that submit or are started by them."""
