"""The commands of `python -m export`, each loaded when it is asked for."""
