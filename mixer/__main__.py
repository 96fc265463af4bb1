"""`python -m mixer` is the `mixer` command."""

from mixer.cli import main

if __name__ == "__main__":
    main()
