"""``python -m fitkit``."""

from fitkit.cli import main

if __name__ == "__main__":
    main()
