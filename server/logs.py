"""Logs: one line an event, as JSON or for reading, on standard output."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

_SHARED: tuple[Processor, ...] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure_logs(log_format: str, stream: TextIO = sys.stdout) -> FilteringBoundLogger:
    """Makes every logger of this process write to `stream`, those of libraries from warnings on.

    Args:
        log_format: json or text.
    """
    renderer = _renderer(log_format)
    structlog.configure(
        processors=[*_SHARED, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log: FilteringBoundLogger = structlog.get_logger()
    return log


def _renderer(log_format: str) -> Processor:
    if log_format == "text":
        return structlog.dev.ConsoleRenderer(colors=False)
    return structlog.processors.JSONRenderer()
