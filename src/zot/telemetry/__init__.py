"""OpenTelemetry for operators: traces, metrics and logs of runs, by the GenAI conventions.

`setup` makes the exporters that the standard `OTEL_*` variables ask for; `trace` turns the events
of a runtime into spans and figures. Nothing here is loaded unless one of those variables is set.
"""
