"""Giving memory back to the system, between steps that each need several copies of a model."""

from __future__ import annotations

import ctypes
import gc


def give_back_memory() -> None:
    """Frees what only cycles hold, and what the C library keeps for later.

    The exporter's objects hold each other and the weights; glibc keeps freed tensors below 32 MiB,
    which is nearly all of a small model. Other C libraries have nothing to trim.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
