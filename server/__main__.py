"""`python -m server DIR...`: serves artefacts over gRPC.

What must come first does so before the rest of the server is imported, which takes seconds.
"""

from __future__ import annotations

from server.huge_pages import use_huge_pages
from server.stop_signals import hold_stop_signals

if __name__ == "__main__":
    hold_stop_signals()
    use_huge_pages()
    from server.command import main

    main()
