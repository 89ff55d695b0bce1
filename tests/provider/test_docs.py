import json
import re
import subprocess
import sys
from pathlib import Path

from zot.provider.scripted import ScriptedProvider

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")


def test_the_table_of_providers_is_the_one_in_the_code():
    command = [sys.executable, str(ROOT / "scripts" / "provider_table.py")]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert table in PAGE, "run scripts/provider_table.py and put its output into docs/providers.md"


def test_the_script_in_the_page_is_one():
    script = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1))
    assert len(ScriptedProvider(script["turns"])._turns) == 4
