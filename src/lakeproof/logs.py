"""Logs: for people on a terminal, otherwise as JSON."""

import logging
import sys
from typing import Any

import structlog

from lakeproof.standard_streams import printable


def logs_are_json() -> bool:
    """Whether log lines are JSON objects, because standard error is not a terminal."""
    return not sys.stderr.isatty()


def configure_logs() -> None:
    """Write structlog's events to standard error: colored on a terminal, otherwise JSON lines."""
    renderers: list[structlog.types.Processor] = (
        [structlog.processors.JSONRenderer()] if logs_are_json() else [_printable, structlog.dev.ConsoleRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _printable(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    return {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}


class Forward(logging.Handler):
    """Forwards log records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Forward a record."""
        details: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(record.levelno, record.name, message=record.getMessage(), **details)


def log_the_rest() -> None:
    """Log what libraries and the interpreter would print, so that each line of standard error is JSON."""
    logging.getLogger().addHandler(Forward(logging.WARNING))
    logging.captureWarnings(True)
    sys.unraisablehook = log_unhandled


def log_unhandled(failed: Any) -> None:
    """Log an error in a thread or finalizer, which Python cannot raise."""
    found = (failed.exc_type, failed.exc_value, failed.exc_traceback)
    structlog.get_logger().error("an error was not handled", exc_info=found)
