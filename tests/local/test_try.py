from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_script_of_make_try_can_be_parsed() -> None:
    assert subprocess.run(["sh", "-n", "scripts/try.sh"], cwd=ROOT, check=False).returncode == 0


def test_the_recording_says_that_it_is_no_model_and_runs_a_real_tool(tmp_path: Path) -> None:
    (tmp_path / "fruit.csv").write_text("apples,3\n")
    zot = tmp_path / "zot"
    zot.write_text(f'#!/bin/sh\nexec {sys.executable} -m zot "$@"\n')
    zot.chmod(0o755)
    client = ROOT / "examples" / "rpc" / "python" / "zot_client.py"
    script = ROOT / "examples" / "try" / "script.json"
    words = [sys.executable, str(client), "Show me what is in fruit.csv."]
    flags = ["--provider", "scripted", "--script", str(script), "--cwd", str(tmp_path)]
    done = subprocess.run(
        [*words, *flags],
        env={**os.environ, "ZOT_BIN": str(zot)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "prepared text, not a model" in done.stdout
    assert '[read] {"path": "fruit.csv"}' in done.stderr
