"""Logging: one line per unit of work, for people on a terminal and as JSON elsewhere."""

import logging
import sys
from typing import Any

import structlog

from lakeproof.streams import printable


def logs_are_json() -> bool:
    """Whether standard error is no terminal, so that log lines are JSON objects."""
    return not sys.stderr.isatty()


def configure_logs() -> None:
    """Send structlog's events to standard error: coloured on a terminal, else one JSON object a line."""
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
    """Passes what libraries log on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record."""
        details: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(record.levelno, record.name, message=record.getMessage(), **details)


def log_the_rest() -> None:
    """Log what libraries and the interpreter would print to standard error, so that each line of it is JSON."""
    logging.getLogger().addHandler(Forward(logging.WARNING))
    logging.captureWarnings(True)
    sys.unraisablehook = log_unhandled


def log_unhandled(failed: Any) -> None:
    """Log an error that Python cannot raise anywhere: of a thread, or of an object that is deleted."""
    found = (failed.exc_type, failed.exc_value, failed.exc_traceback)
    structlog.get_logger().error("an error was not handled", exc_info=found)
