"""What a server is put through; each returns what it found, and raises where anything went wrong.

The tests run them briefly on tiny models, `python -m tests.load` at length on real ones.
"""
