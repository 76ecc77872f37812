"""``python -m envbundle``."""

from envbundle.cli.main import entry

if __name__ == "__main__":
    entry()
