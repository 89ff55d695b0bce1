"""OpenTelemetry, through a spawned `zot rpc` and a collector that decodes what it is sent."""

import gzip
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.mcp import entry
from support.rpc import CANARIES, Zot, environment, make_folder, write_script

OK = {"text": "ok", "usage": {"input": 7, "output": 2}, "repeat": True}


class Collector:
    """An OTLP receiver on loopback: decodes every request, and keeps it."""

    def __init__(self) -> None:
        kinds = {
            "/v1/traces": ExportTraceServiceRequest,
            "/v1/metrics": ExportMetricsServiceRequest,
            "/v1/logs": ExportLogsServiceRequest,
        }
        self.requests: list[Any] = []
        self.headers: list[str | None] = []
        own = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                message = kinds[self.path]()
                message.ParseFromString(body)
                own.requests.append(message)
                own.headers.append(self.headers.get("x-token"))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[Any]:
        asked = [r for r in self.requests if isinstance(r, ExportTraceServiceRequest)]
        scopes = [scope for r in asked for rs in r.resource_spans for scope in rs.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def named(self, start: str) -> list[Any]:
        return [span for span in self.spans() if span.name.startswith(start)]

    def metrics(self) -> set[str]:
        asked = [r for r in self.requests if isinstance(r, ExportMetricsServiceRequest)]
        scopes = [scope for r in asked for rm in r.resource_metrics for scope in rm.scope_metrics]
        return {metric.name for scope in scopes for metric in scope.metrics}

    def logs(self) -> list[Any]:
        asked = [r for r in self.requests if isinstance(r, ExportLogsServiceRequest)]
        scopes = [scope for r in asked for rl in r.resource_logs for scope in rl.scope_logs]
        return [record for scope in scopes for record in scope.log_records]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def run(folder: Path, collector: Collector, *turns: dict, **more: Any) -> list[dict]:
    """Answer one prompt, and end the process, which exports what is left."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **more.pop("env", {})}
    with Zot(folder, list(turns), env=env, **more) as zot:
        return zot.prompt("the prompt of the user")


def attributes(span: Any) -> dict[str, Any]:
    found = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        found[pair.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return found


def bash(command: str) -> dict:
    return {"tools": [{"name": "bash", "args": {"command": command}}]}


def test_a_prompt_is_one_trace_of_model_calls_and_tools(
    tmp_path: Path, collector: Collector
) -> None:
    frames = run(tmp_path, collector, bash("echo $TRACEPARENT > seen"), OK)
    assert frames[-1]["type"] == "done"
    (agent,) = collector.named("invoke_agent")
    first, second = sorted(collector.named("chat"), key=lambda span: span.start_time_unix_nano)
    (tool,) = collector.named("execute_tool bash")
    assert {span.parent_span_id for span in (first, second, tool)} == {agent.span_id}
    assert {span.trace_id for span in collector.spans()} == {agent.trace_id}
    said = attributes(second)
    assert said["gen_ai.provider.name"] == "scripted"
    assert said["gen_ai.request.model"] == "scripted"
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (7, 2)
    assert said["gen_ai.response.finish_reasons"] == ["end"]
    assert said["gen_ai.response.time_to_first_chunk"] > 0
    assert attributes(tool)["zot.tool.status"] == "completed"
    seen = (tmp_path / "work" / "seen").read_text().strip()
    assert seen.startswith(f"00-{tool.trace_id.hex()}-{tool.span_id.hex()}-")
    assert {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
    } <= collector.metrics()


def test_texts_are_exported_only_when_asked_for_and_secrets_never(
    tmp_path: Path, collector: Collector
) -> None:
    start, end = CANARIES[0][:9], CANARIES[0][9:]
    turns = (bash(f"printf %s%s {start} {end}; env"), {**OK, "text": "the answer"})
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "x-token=canary-collector-token"}
    run(tmp_path / "a", collector, *turns, env=headers)
    silent = str(collector.requests)
    assert "the prompt of the user" not in silent
    assert "the answer" not in silent
    content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    run(tmp_path / "b", collector, *turns, env={**headers, **content})
    told = str(collector.requests)
    assert "the prompt of the user" in told
    assert "the answer" in told
    assert CANARIES[0] not in told
    assert "canary-collector-token" not in told
    assert set(collector.headers) == {"canary-collector-token"}


def test_a_failure_is_a_status_and_a_log_record(tmp_path: Path, collector: Collector) -> None:
    run(tmp_path, collector, {"error": {"status": 400, "message": "no such thing"}})
    (agent,) = collector.named("invoke_agent")
    assert agent.status.code == 2
    (record,) = collector.logs()
    assert record.severity_text == "ERROR"
    assert record.trace_id == agent.trace_id


def test_a_refused_call_and_a_waiting_approval_are_told(
    tmp_path: Path, collector: Collector
) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    with Zot(tmp_path, [bash("touch made"), OK], env=env, features=["approvals"]) as zot:
        zot.send("prompt", message="go")
        request = zot.until("approval_request")[-1]
        zot.ask("approve", request_id=request["request_id"], decision="deny")
        zot.until("done")
    (agent,) = collector.named("invoke_agent")
    assert [event.name for event in agent.events] == ["tool not run"]
    assert not collector.named("execute_tool")


def test_a_task_and_the_program_that_started_zot_are_in_the_trace(
    tmp_path: Path, collector: Collector
) -> None:
    above = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    go = {"match": "user", "tools": [{"name": "task", "args": {"prompt": "look"}}]}
    look = {"match": "look", "text": "seen"}
    run(tmp_path, collector, go, look, OK, args=["--tasks"], env={"TRACEPARENT": above})
    assert {span.trace_id.hex() for span in collector.spans()} == {above.split("-")[1]}
    (tool,) = collector.named("execute_tool task")
    parents = {span.parent_span_id.hex() for span in collector.named("invoke_agent")}
    assert parents == {above.split("-")[2], tool.span_id.hex()}


def test_an_mcp_server_gets_the_traceparent(tmp_path: Path, collector: Collector) -> None:
    meta = {"name": "meta", "description": "Shows", "inputSchema": {"type": "object"}}
    config = {"mcpServers": {"test": entry(tools=[meta])}}
    (tmp_path / "zot-home").mkdir()
    (tmp_path / "zot-home" / "mcp.json").write_text(json.dumps(config))
    frames = run(tmp_path, collector, {"tools": [{"name": "mcp__test__meta", "args": {}}]}, OK)
    (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
    (tool,) = collector.named("execute_tool mcp__test__meta")
    assert f"-{tool.span_id.hex()}-" in result["content"][0]["text"]


def test_nothing_is_loaded_when_no_variable_is_set(tmp_path: Path) -> None:
    cwd = make_folder(tmp_path)
    script = write_script(tmp_path, ["hi"])[-1]
    code = f"""import sys
from zot import Runtime
with Runtime(provider="scripted", script={script!r}) as runtime:
    assert runtime.ask("hi").text == "hi"
print([name for name in sys.modules if name.startswith("opentelemetry")])"""
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, env=environment(tmp_path), cwd=cwd, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_a_collector_that_is_away_delays_no_run(tmp_path: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with Zot(tmp_path, [OK], env=env) as zot:
        assert zot.prompt()[-1]["type"] == "done"
        assert "Traceback" not in zot.stderr()
