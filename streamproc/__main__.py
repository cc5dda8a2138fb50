"""``python -m streamproc`` is the command line."""

from streamproc.cli import main

if __name__ == "__main__":
    main()
