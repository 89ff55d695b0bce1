import os
import subprocess
from pathlib import Path

import pytest

import zot
from zot.home import own_command, own_environ


@pytest.mark.parametrize("where", ["{}:", ":{}", ".:{}", "{}::", "src:{}"])
def test_a_zot_that_zot_starts_runs_nothing_of_the_directory_it_works_in(
    tmp_path: Path, where: str
) -> None:
    (tmp_path / "src").mkdir()
    for name in ("zot.py", "sitecustomize.py", "src/zot.py", "src/sitecustomize.py"):
        (tmp_path / name).write_text("open('run', 'w')\n")
    ours = str(Path(zot.__file__).parents[1])
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": where.format(ours), "HOME": str(tmp_path)}
    started = subprocess.run(
        own_command("--version"),
        cwd=tmp_path,
        env=own_environ(environ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert started.stdout == f"zot {zot.__version__}\n"
    assert not (tmp_path / "run").exists()
    assert own_environ(environ)["PYTHONPATH"] == ours


def test_without_a_path_there_is_no_variable() -> None:
    assert own_environ({"PYTHONPATH": ":", "A": "1"}) == {"A": "1"}
