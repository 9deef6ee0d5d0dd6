"""`python -m trainwright` is the `trainwright` command."""

from trainwright.cli.main import main

if __name__ == "__main__":
    main()
