"""Logging: one line per unit of work, for people on a terminal and as JSON elsewhere."""

import logging
import sys

import structlog


def logs_are_json() -> bool:
    """Whether standard error is no terminal, so that log lines are JSON objects."""
    return not sys.stderr.isatty()


def configure_logs() -> None:
    """Send structlog's events to standard error: coloured on a terminal, else one JSON object a line."""
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer() if logs_are_json() else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
