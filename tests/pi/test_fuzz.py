"""Any commands in any order: every one is answered once, and the events keep their order."""

import random

import pytest
from support.pi import Grammar, PiProcess, PiServers

TURNS = (
    {"match": "<conversation>", "text": "a summary", "repeat": True},
    {"match": "fail", "error": {"status": 400, "message": "no"}, "repeat": True},
    {"match": "busy", "error": {"status": 529, "message": "overloaded"}, "repeat": True},
    {"match": "full", "text": "x", "usage": {"input": 190_000}, "repeat": True},
    {"match": "slow", "text": ["a"] * 20, "delay_ms": 20, "repeat": True},
    {"text": ["Hel", "lo"], "thinking": "hm", "repeat": True},
)
TOOLS = tuple(
    {
        "match": "tool",
        "text": "look",
        "tools": [{"name": "bash", "args": {"command": "sleep 0.05; echo x"}}, {"name": "nope"}],
    }
    for _ in range(12)
)
WORDS = ("hi", "fail", "busy", "full", "slow", "tool", "tool", "slow")


def commands(rng: random.Random) -> tuple[str, dict[str, object]]:
    word = rng.choice(WORDS)
    return rng.choice(
        (
            ("prompt", {"message": word}),
            ("prompt", {"message": word}),
            ("prompt", {"message": word, "streamingBehavior": "steer"}),
            ("prompt", {"message": word, "streamingBehavior": "followUp"}),
            ("steer", {"message": word}),
            ("follow_up", {"message": word}),
            ("abort", {}),
            ("abort", {}),
            ("abort_retry", {}),
            ("clear_queue", {}),
            ("compact", {}),
            ("get_state", {}),
            ("get_messages", {}),
            ("get_entries", {}),
            ("get_tree", {}),
            ("get_session_stats", {}),
            ("set_thinking_level", {"level": rng.choice(("off", "high", "nonsense"))}),
            ("cycle_thinking_level", {}),
            ("cycle_model", {}),
            ("set_model", {"provider": "scripted", "modelId": "scripted"}),
            ("set_auto_retry", {"enabled": rng.random() < 0.3}),
            ("set_auto_compaction", {"enabled": rng.random() < 0.7}),
            ("set_steering_mode", {"mode": "all"}),
            ("bash", {"command": "echo x"}),
            ("bash", {"command": "sleep 0.2"}),
            ("abort_bash", {}),
            ("new_session", {}),
            ("clone", {}),
            ("fork", {"entryId": "nothere0"}),
            ("set_session_name", {"name": word}),
            ("get_commands", {}),
            ("nonsense", {}),
        )
    )


def settle(server: PiProcess, grammar: Grammar, wanted: set[str]) -> None:
    while not (wanted <= grammar.answers.keys() and grammar.at_rest()):
        grammar.take(server.frame())


@pytest.mark.parametrize("seed", range(3))
def test_every_command_is_answered_once_and_in_order(servers: PiServers, seed: int) -> None:
    rng = random.Random(seed)
    args = rng.choice((["--no-session"], [], ["--pi-protocol", "c"]))
    with servers.start(*TOOLS, *TURNS, args=args) as server:
        grammar = Grammar()
        sent: set[str] = set()
        for number in range(80):
            type, fields = commands(rng)
            sent.add(f"{number}")
            server.send(type, id=f"{number}", **fields)
            if rng.random() < 0.3:
                grammar.take(server.frame())
        server.send("abort", id="last")
        settle(server, grammar, {*sent, "last"})
        for frame in server.rest():
            grammar.take(frame)
        assert server.wait() == 0
    assert grammar.at_rest()
    assert grammar.answers == dict.fromkeys([*sent, "last"], 1)
    assert grammar.settled == grammar.runs


@pytest.mark.slow
def test_every_prompt_of_generation_a_is_one_run(servers: PiServers) -> None:
    rng = random.Random(7)
    with servers.start(*TOOLS, *TURNS) as server:
        grammar = Grammar()
        prompts = 0
        for _ in range(30):
            line = rng.choice(("prompt", "prompt", "abort", "compact", "garbage"))
            if line == "garbage":
                server.raw(b"null\n")
            elif line == "prompt":
                prompts += 1
                server.send("prompt", message=rng.choice(("hi", "fail", "full", "tool", "slow")))
            else:
                server.send(line)
            if rng.random() < 0.5:
                grammar.take(server.frame())
        for frame in server.rest():
            grammar.take(frame)
        assert server.wait() == 0
    assert grammar.at_rest()
    assert (grammar.runs, grammar.settled, grammar.answers) == (prompts, 0, {})
