"""Tracer, meter and logger of the process, as the standard `OTEL_*` variables ask for."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Protocol

from opentelemetry import metrics, trace
from opentelemetry._logs import Logger
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from zot import __version__
from zot.errors import ConfigError

NAME = "zot"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class _Provider(Protocol):
    def shutdown(self) -> object: ...


class Telemetry:
    """The tracer, the meter and the logger of a process."""

    def __init__(
        self,
        tracer: trace.Tracer,
        meter: metrics.Meter,
        logger: Logger | None,
        own: tuple[_Provider, ...],
        *,
        content: bool,
        parent: str,
    ) -> None:
        """`own`: providers to shut down. `content`: whether texts may be exported. `parent`: W3C
        traceparent of the program that started this one; empty: none."""
        self.tracer, self.logger = tracer, logger
        self.content, self.parent = content, parent
        self._own = own
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}")
        self.durations = meter.create_histogram("gen_ai.client.operation.duration", "s")
        self.first_token = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s"
        )
        self.cost = meter.create_counter("zot.cost", "USD")

    def close(self) -> None:
        """Export what is left, and stop the exporting threads."""
        for provider in self._own:
            provider.shutdown()


def start_telemetry(environ: Mapping[str, str]) -> Telemetry:
    """Return the telemetry of this process. Raises ConfigError for a protocol zot lacks.

    A program that embeds zot and has set a provider of its own keeps it: spans go there.
    """
    content = environ.get(CONTENT, "").lower() in ("true", "1")
    parent = environ.get("TRACEPARENT", "")
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        meter = metrics.get_meter(NAME, __version__)
        tracer = provider.get_tracer(NAME, __version__)
        return Telemetry(tracer, meter, None, (), content=content, parent=parent)
    return _exporting(environ, content=content, parent=parent)


def _exporting(environ: Mapping[str, str], *, content: bool, parent: str) -> Telemetry:
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, and zot exports with http/protobuf: set "
            "that, and the collector's HTTP address (port 4318 by default)"
        )
    resource = Resource.create(
        {
            "service.name": environ.get("OTEL_SERVICE_NAME") or NAME,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
    )
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _wanted(environ, "TRACES"):
        traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = []
    if _wanted(environ, "METRICS"):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    meters = MeterProvider(readers, resource, shutdown_on_exit=False)
    logs = LoggerProvider(resource, shutdown_on_exit=False)
    if _wanted(environ, "LOGS"):
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    return Telemetry(
        traces.get_tracer(NAME, __version__),
        meters.get_meter(NAME, __version__),
        logs.get_logger(NAME, __version__),
        (traces, meters, logs),
        content=content,
        parent=parent,
    )


def _wanted(environ: Mapping[str, str], signal: str) -> bool:
    """Return whether this signal has an address, or is asked for by name."""
    chosen = environ.get(f"OTEL_{signal}_EXPORTER", "")
    if chosen:
        return chosen == "otlp"
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environ.get(name) for name in names)
