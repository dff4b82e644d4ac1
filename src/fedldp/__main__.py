"""The command line, as ``python -m fedldp``."""

from fedldp.cli import main

if __name__ == "__main__":
    main()
