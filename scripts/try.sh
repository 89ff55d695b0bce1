#!/bin/sh
# Try zot from a fresh clone, with no key: a real model on this machine makes a real tool call.
#
#   1. a virtual environment in .venv, with zot and its model runtime (35 MB)
#   2. a model: 1.1 GB, or 98 MB where disk, memory or the download do not allow the large one
#   3. one prompt through `zot rpc`, sent by the reference client in examples/rpc/python
#   4. at a terminal: `zot` opens there, with the same model
#
# ZOT_TRY_MODEL=smollm2-135m takes the small model at once. Nothing is changed outside .venv,
# zot's own directory (ZOT_HOME) and a temporary directory.
set -u
cd "$(dirname "$0")/.." || exit 1

PYTHON=${PYTHON:-python3}
BIN=$PWD/.venv/bin
LARGE=qwen2.5-coder-1.5b
SMALL=smollm2-135m

BOLD='' PLAIN=''
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    BOLD=$(printf '\033[1m') PLAIN=$(printf '\033[0m')
fi
say() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN" >&2; }
stop() { printf '%s\n' "$*" >&2; exit 1; }

# Ctrl+C ends all of it, whatever the program that runs makes of it.
trap 'exit 130' INT

set_up() {
    [ .venv/.tried -nt pyproject.toml ] && return
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "zot needs Python 3.11 or newer; run dev.py with another one: python3.12 dev.py try"
    # One that was cut short, or whose Python is gone, has no pip that runs.
    "$BIN/pip" --version >/dev/null 2>&1 || why=$("$PYTHON" -m venv --clear .venv 2>&1) ||
        stop "could not make the environment .venv: $why"
    "$BIN/pip" install --quiet --disable-pip-version-check -e . ||
        stop "could not install zot: pip could not fetch its dependencies (no network?)"
    "$BIN/pip" install --quiet --disable-pip-version-check -e '.[local]' && touch .venv/.tried
}

# Sets MODEL to one that is here, or leaves it empty.
pull_model() {
    MODEL=
    for name in ${ZOT_TRY_MODEL:-$LARGE $SMALL}; do
        if "$BIN/zot" local pull "$name"; then
            MODEL=$name
            return
        fi
    done
}

# What the prompt is about: a directory with one small file.
make_sample() {
    SAMPLE=$(mktemp -d) || stop "could not make a temporary directory"
    trap 'rm -rf "$SAMPLE"' EXIT
    printf 'apples,3\npears,5\nplums,8\n' >"$SAMPLE/fruit.csv"
}

# ask PROMPT FLAGS...
ask() {
    printf '> %s\n' "$1" >&2
    ZOT_BIN="$BIN/zot" "$BIN/python" examples/rpc/python/zot_client.py "$@" --cwd "$SAMPLE"
}

with_model() {
    say "3. One prompt through zot rpc, answered by $MODEL on this machine"
    # Nobody is asked here, so whatever the model may want to write or run is refused.
    ask "Show me what is in fruit.csv." --provider local --model "$MODEL" \
        --approve write,edit,bash || return 1
    say "That was a real model and a real tool call."
    if [ "$MODEL" = "$SMALL" ]; then
        cat >&2 <<'TEXT'
This is the small model. It is real, but too small to be of use: it takes the right action about
half of the time and its texts are often wrong. `zot local pull` fetches the larger one.
TEXT
    else
        cat >&2 <<'TEXT'
What to expect of a 1.5B model: it runs commands, reads, counts, creates and renames files and makes
simple edits, one step at a time, and gets nearly all of these right. It does not find bugs, plan
work or know when it is wrong, and may change a file when only asked about it. bench/local.md has
the numbers. At a terminal zot asks before it runs or changes anything:
TEXT
        printf '    %s -p --provider local "how many lines does README.md have?"\n' .venv/bin/zot >&2
        echo "For real work give zot a key (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...) or a server." >&2
    fi
    echo "The model stays for next time; \`.venv/bin/zot local remove $MODEL\` deletes it." >&2
}

without_model() {
    say "3. No model could be fetched, so here is a recording"
    cat >&2 <<'TEXT'
THIS IS NOT A MODEL. The answers below were written beforehand (examples/try/script.json); only the
wire, the loop and the tool are real. With a key or a network it would be a model.
TEXT
    ask "Show me what is in fruit.csv." --provider scripted --script examples/try/script.json
}

say "1. Setting up .venv (about a minute, once)"
set_up
say "2. Fetching a model (it is kept; a cut download goes on where it was)"
pull_model
make_sample
if [ -n "$MODEL" ]; then
    with_model || exit 1
else
    without_model || exit 1
fi

# Somebody is there: the same agent, for a person. It asks before it writes or runs anything.
if [ -n "$MODEL" ] && [ -t 0 ] && [ -t 1 ]; then
    say "4. zot in this terminal, with the same model (/help helps, /exit leaves)"
    rm -rf "$SAMPLE"
    exec "$BIN/zot" --provider local --model "$MODEL"
fi
