"""Write the model catalog of the package from public data; run by hand, needs npm and pip.

    python scripts/update_catalog.py [--pi-ai TARBALL] [--litellm WHEEL] [--check]

Facts come from the JSON data inside the npm package `@earendil-works/pi-ai` (MIT); nothing of it
is executed. The day on which a model ends comes from the price file of litellm; prices are compared
with it, and differences are printed for a person to judge. The files go to
src/zot/provider/data/models/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "@earendil-works/pi-ai"
TARGET = Path(__file__).parent.parent / "src" / "zot" / "provider" / "data" / "models"
PRICES = "litellm/model_prices_and_context_window_backup.json"

# zot's name of a provider, and the package's.
PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "deepseek": "deepseek",
    "kimi": "kimi-coding",
    "moonshot": "moonshotai",
    "openrouter": "openrouter",
    "groq": "groq",
    "cerebras": "cerebras",
    "xai": "xai",
    "together": "together",
    "mistral": "mistral",
    "fireworks": "fireworks",
    "zai": "zai",
    "minimax": "minimax",
    "huggingface": "huggingface",
    "vercel": "vercel-ai-gateway",
    "azure": "azure",
    "github-copilot": "github-copilot",
}
APIS = {
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "azure-openai-responses": "openai-responses",
    "openai-completions": "openai-chat",
    "mistral-conversations": "openai-chat",  # the same wire under the vendor's own name
    "google-generative-ai": "google",
}
OWN_API = {
    "anthropic": "anthropic",
    "openai": "openai-responses",
    "google": "google",
    "xai": "openai-responses",
    "minimax": "anthropic",
    "vercel": "anthropic",
    "azure": "openai-responses",
}
THINKING = {"openai", "deepseek", "zai", "openrouter", "together"}
# Quirks that the provider's row in providers.json already has.
ROW_THINKING = {
    "deepseek": "deepseek",
    "zai": "zai",
    "openrouter": "openrouter",
    "together": "together",
}
ROW_REPLAYS = {"deepseek", "kimi", "moonshot", "openrouter", "zai"}
# litellm's key is its provider name, a slash and the id, except for those that it lists bare.
BARE = {"anthropic", "openai"}
LITELLM = {
    "google": "gemini",
    "together": "together_ai",
    "fireworks": "fireworks_ai",
    "github-copilot": "github_copilot",
    "vercel": "vercel_ai_gateway",
}
# The vendors whose models others pass on: one that ends at its vendor ends there, too.
VENDORS = {"anthropic", "openai", "google"}
RESELLERS = {"openrouter", "vercel", "github-copilot"}


def fetch(args: argparse.Namespace, folder: Path) -> tuple[Path, Path | None]:
    """The two archives: those given, else the newest."""
    tarball, wheel = args.pi_ai, args.litellm
    if tarball is None:
        command = ["npm", "view", PACKAGE, "dist-tags.latest"]
        version = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
        command = ["npm", "pack", f"{PACKAGE}@{version}", "--silent"]
        name = subprocess.check_output(command, text=True, cwd=folder).strip().splitlines()[-1]
        tarball = folder / name
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "litellm", "--no-deps", "-q", "-d", "."]
        if subprocess.run(command, cwd=folder).returncode == 0:
            wheel = next(folder.glob("litellm-*.whl"), None)
    return tarball, wheel


def read_package(tarball: Path) -> tuple[str, str, dict[str, list[dict]]]:
    """Version, date and the chat models of every provider in PROVIDERS."""
    found: dict[str, list[dict]] = {}
    with tarfile.open(tarball) as archive:
        manifest = json.load(archive.extractfile("package/package.json"))
        for name, theirs in PROVIDERS.items():
            member = archive.getmember(f"package/dist/providers/data/{theirs}.json")
            groups = json.load(archive.extractfile(member))
            rows = [row for group in groups.values() for row in group.values()]
            found[name] = [row for row in rows if row["type"] == "chat"]
    command = ["npm", "view", PACKAGE, "time", "--json"]
    times = subprocess.run(command, capture_output=True, text=True)
    published = json.loads(times.stdout)[manifest["version"]] if times.returncode == 0 else ""
    return manifest["version"], published[:10], found


def price_of(row: dict) -> list[float] | None:
    cost = row["cost"]
    prices = [cost["input"], cost["output"], cost["cacheRead"], cost["cacheWrite"]]
    # Zero for both is how the source writes "not known" or "part of a subscription"; a model
    # that says in its name that it is free is the exception.
    if not any(prices[:2]) and "free" not in row["id"].lower():
        return None
    if any(price < 0 for price in prices):
        return None
    return [round(price, 6) for price in prices]


def compat_of(name: str, row: dict) -> dict:
    theirs = row.get("compat") or {}
    ours: dict = {}
    levels = row.get("thinkingLevelMap")
    if levels and row["reasoning"]:
        ours["levels"] = {"minimum" if key == "minimal" else key: levels[key] for key in levels}
    if theirs.get("forceAdaptiveThinking"):
        ours["adaptive"] = True
    if APIS[row["api"]] == "anthropic" and theirs.get("supportsMidConvoEffort"):
        ours["binding"] = True
    thinking = theirs.get("thinkingFormat")
    if thinking in THINKING and thinking != ROW_THINKING.get(name, "openai"):
        ours["thinking"] = thinking
    if theirs.get("requiresReasoningContentOnAssistantMessages") and name not in ROW_REPLAYS:
        ours["replay_reasoning"] = "reasoning_content"
    if "supportsReasoningEffort" in theirs and theirs["supportsReasoningEffort"] == (
        name == "together"
    ):
        ours["effort"] = theirs["supportsReasoningEffort"]
    if theirs.get("allowEmptySignature") and name != "vercel":
        ours["empty_signature"] = True
    if theirs.get("supportsCacheControlOnTools") is False:
        ours["cache_tools"] = False
    if theirs.get("cacheControlFormat") == "anthropic":
        ours["cache_marks"] = True
    if theirs.get("zaiToolStream"):
        ours["tool_stream"] = True
    return ours


def convert(name: str, row: dict, prices: dict) -> dict:
    api = APIS[row["api"]]
    out = {
        "id": row["id"],
        "name": row["name"],
        "api": None if api == OWN_API.get(name, "openai-chat") else api,
        "context": row["contextWindow"],
        "output": row["maxTokens"],
        "reasoning": row["reasoning"] or None,
        "images": "image" in row["input"] or None,
        "price": price_of(row),
        "compat": compat_of(name, row) or None,
        "deprecation_date": end_of(name, row["id"], prices) or None,
    }
    return {key: value for key, value in out.items() if value is not None}


def litellm_keys(name: str, id: str) -> list[str]:
    """Where litellm may have the model: the provider's own row first, then that of its vendor."""
    keys = [id if name in BARE else f"{LITELLM.get(name, name)}/{id}"]
    vendor, _, bare = id.rpartition("/")
    if name == "google" or (name in RESELLERS and (vendor in VENDORS or name == "github-copilot")):
        # Resellers write the versions of Claude with a dot.
        keys.append(bare.replace(".", "-") if bare.startswith("claude") else bare)
    return keys


def end_of(name: str, id: str, prices: dict) -> str:
    """The day on which the model ends, as far as litellm knows."""
    dates = (prices.get(key, {}).get("deprecation_date") for key in litellm_keys(name, id))
    return next((date for date in dates if date), "")


def differences(name: str, rows: list[dict], prices: dict) -> list[str]:
    """Where litellm has another price for the same model."""
    wrong = []
    for row in rows:
        other = prices.get(litellm_keys(name, row["id"])[0])
        if other is None or "price" not in row or "input_cost_per_token" not in other:
            continue
        theirs = [
            round(other.get(f"{kind}_cost_per_token", 0) * 1e6, 4) for kind in ("input", "output")
        ]
        if theirs != [round(price, 4) for price in row["price"][:2]]:
            wrong.append(f"{name}/{row['id']}: {row['price'][:2]}, litellm says {theirs}")
    return wrong


def dump(source: str, date: str, rows: list[dict]) -> str:
    """One model a line: compact, and a change of one price is a change of one line."""
    head = json.dumps({"date": date, "source": source})[:-1]
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    return head + ', "models": [\n' + ",\n".join(lines) + "\n]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pi-ai", type=Path, help="a tarball of the npm package")
    parser.add_argument("--litellm", type=Path, help="a wheel of litellm")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tarball, wheel = fetch(args, Path(folder))
        version, date, found = read_package(tarball)
        if wheel is None:
            sys.exit("no wheel of litellm, which says when models end: pass --litellm WHEEL")
        with zipfile.ZipFile(wheel) as archive:
            prices = json.loads(archive.read(PRICES))
        source_names = f"{PACKAGE} {version}, litellm {wheel.name.split('-')[1]}"
    stale, total = [], 0
    for name, source in found.items():
        rows = [convert(name, row, prices) for row in source]
        rows.sort(key=lambda row: row["id"])
        text = dump(source_names, date, rows)
        path = TARGET / f"{name}.json"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not args.check:
                path.write_text(text, encoding="utf-8")
        total += len(rows)
        for line in differences(name, rows, prices):
            print(line)
    print(f"{total} models of {version} ({date}); changed: {', '.join(stale) or 'none'}")
    if args.check and stale:
        sys.exit(1)


if __name__ == "__main__":
    main()
