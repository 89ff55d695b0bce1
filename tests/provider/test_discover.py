import pytest
from support.provider import KEY

from zot.errors import BadResponse, ConfigError, NetworkError, Rejected
from zot.provider.discover import as_model, can_talk, live_models
from zot.provider.providers import PROVIDERS
from zot.testing.fakeserver import FakeServer


@pytest.fixture(scope="module")
def server():
    with FakeServer() as made:
        yield made


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("anthropic", "/v1/models?limit=1000"),
        ("openai", "/v1/models"),
        ("google", "/v1beta/models?pageSize=1000"),
        ("ollama", "/v1/models"),
        ("azure", "/openai/v1/models"),
        ("github-copilot", "/models"),
    ],
)
def test_the_list_is_asked_where_the_provider_has_it(server, provider, path):
    models = live_models(PROVIDERS[provider], KEY, server.url)
    assert [model.id for model in models] == ["fake-model", "claude-sonnet-5-5", "gpt-6.1-sol"]
    assert {model.source for model in models} == {"live"}
    seen = server.requests[-1]
    assert (seen.method, seen.path) == ("GET", path)
    assert KEY in str(seen.headers)


def test_a_model_of_the_catalog_keeps_its_price(server):
    models = {model.id: model for model in live_models(PROVIDERS["anthropic"], KEY, server.url)}
    assert models["claude-sonnet-5-5"].price is not None
    assert models["fake-model"].price is None


def test_a_local_server_is_asked_without_a_key(server):
    live_models(PROVIDERS["ollama"], "", f"{server.url}/v1")
    assert "authorization" not in server.requests[-1].headers


def test_what_cannot_talk_is_left_out():
    assert not can_talk({"id": "text-embedding-3"})
    assert not can_talk({"name": "models/x", "supportedGenerationMethods": ["embedContent"]})
    assert can_talk({"name": "models/x", "supportedGenerationMethods": ["generateContent"]})
    assert not can_talk({})


def test_windows_come_in_many_words():
    vllm = PROVIDERS["vllm"]
    assert as_model(vllm, {"id": "m", "max_model_len": 4096}, {}).context_window == 4096
    row = {"name": "models/g", "displayName": "G", "inputTokenLimit": 9, "outputTokenLimit": 5}
    made = as_model(PROVIDERS["google"], row, {})
    assert (made.id, made.name, made.context_window, made.max_output) == ("g", "G", 9, 5)


def test_errors_are_clear(server):
    with pytest.raises(ConfigError, match="no address"):
        live_models(PROVIDERS["azure"], KEY)
    with pytest.raises(NetworkError):
        live_models(PROVIDERS["ollama"], "", "http://127.0.0.1:9/v1", seconds=5)
    with pytest.raises(Rejected, match="http 404"), Page(404) as url:
        live_models(PROVIDERS["ollama"], "", url)
    with pytest.raises(BadResponse, match="not a list of models"), Page() as url:
        live_models(PROVIDERS["ollama"], "", url)


class Page:
    """A web page where a model server was expected."""

    def __init__(self, status=200):
        self.status = status

    def __enter__(self):
        import http.server
        import threading

        status = self.status

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("content-length", "6")
                self.end_headers()
                self.wfile.write(b"<html>")

            def log_message(self, *args):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
