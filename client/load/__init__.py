"""Load for a server, with every answer checked: `python -m client load`."""
