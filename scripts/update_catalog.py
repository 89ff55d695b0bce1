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
ROW_SHORT_CACHE = {"fireworks", "together", "xai"}
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


OPENAI_CACHE = {"short": 1_800, "long": 43_200}
"""Lifetimes that `prompt_cache_options` can ask for."""
SERVICES = ("flex", "priority", "batches", "ultrafast")
WORDS = {"batches": "batch"}


def price_of(cost: dict, other: dict, above: str, long_factor: float) -> list[float]:
    """The fields of Rates. A price of nought for cached tokens is how the source writes "not
    known": litellm may know it, and else they are billed like other input.

    `above`: the end of litellm's keys for this tier. `long_factor`: on the price of input for
    entries that are cached for an hour, where litellm says nothing.
    """
    input, output = cost["input"], cost["output"]
    read = cost["cacheRead"] or per_million(other, f"cache_read_input_token_cost{above}", input)
    written = "cache_creation_input_token_cost"
    write = cost["cacheWrite"] or per_million(other, f"{written}{above}") or input
    prices = [input, output, read, write]
    names = (f"{written}_above_{hours}hr{above}" for hours in (1, 12))
    long = next((per_million(other, name) for name in names if name in other), None)
    if long is not None or long_factor:
        prices.append(input * long_factor if long is None else long)
    return [round(price, 6) for price in prices]


def per_million(other: dict, key: str, without: float = 0.0) -> float:
    value = other.get(key)
    return without if value is None else value * 1_000_000


def prices_of(row: dict, other: dict) -> dict:
    """The price and its tiers; nothing when the price is not known."""
    cost = row["cost"]
    prices = [cost[kind] for kind in ("input", "output", "cacheRead", "cacheWrite")]
    # Zero for both is how the source writes "not known" or "part of a subscription"; a model
    # that says in its name that it is free is the exception.
    if not any(prices[:2]) and "free" not in row["id"].lower():
        return {}
    if any(price < 0 for price in prices):
        return {}
    is_claude = "claude" in row["id"] and any(prices)
    long_factor = 2.0 if is_claude else 0.0
    tiers = []
    for tier in cost.get("tiers") or tiers_of(other):
        above = tier["inputTokensAbove"]
        end = f"_above_{above // 1000}k_tokens"
        tiers.append([above, *price_of(tier, other, end, long_factor)])
    tiers.sort()
    return {
        "price": price_of(cost, other, "", long_factor),
        "tiers": tiers or None,
        "services": services_of(other) or None,
    }


def tiers_of(other: dict) -> list[dict]:
    """litellm's tiers by the size of the input, in the words of the package."""
    tiers = []
    for key in filter(tier_key, other):
        end = key.removeprefix(KINDS[0])
        size = end.removeprefix("_above_").removesuffix("k_tokens")
        theirs = [per_million(other, f"{kind}{end}") for kind in KINDS]
        names = ("input", "output", "cacheRead", "cacheWrite")
        tiers.append(
            {"inputTokensAbove": int(size) * 1000, **dict(zip(names, theirs, strict=True))}
        )
    return tiers


def services_of(other: dict) -> dict:
    """Factors on input, output and cache read of the provider's other ways to serve a request."""
    kinds = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    found = {}
    for service in SERVICES:
        pairs = [(other.get(f"{kind}_{service}"), other.get(kind)) for kind in kinds]
        factors = [price / usual if price and usual else None for price, usual in pairs]
        if factors[0] is not None:
            found[WORDS.get(service, service)] = [
                round(factors[0] if factor is None else factor, 6) for factor in factors
            ]
    for word, factor in (other.get("provider_specific_entry") or {}).items():
        if isinstance(factor, int | float):
            found[word] = [factor] * 3
    return found


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
    if theirs.get("zaiToolStream"):
        ours["tool_stream"] = True
    return ours | cache_compat_of(name, theirs)


def cache_compat_of(name: str, theirs: dict) -> dict:
    ours: dict = {}
    if theirs.get("supportsCacheControlOnTools") is False:
        ours["cache_tools"] = False
    if theirs.get("cacheControlFormat") == "anthropic":
        ours["cache_marks"] = True
    if theirs.get("supportsExplicitPromptCacheMode"):
        ours["cache_options"] = True
    if theirs.get("supportsLongCacheRetention") is False and name not in ROW_SHORT_CACHE:
        ours["long_cache"] = False
    return ours


def convert(name: str, row: dict, prices: dict) -> dict:
    api = APIS[row["api"]]
    other = prices.get(litellm_keys(name, row["id"])[0], {})
    cache, limits = row.get("promptCache"), row.get("inputLimits") or {}
    if (row.get("compat") or {}).get("supportsExplicitPromptCacheMode"):
        cache = OPENAI_CACHE
    out = {
        "id": row["id"],
        "name": row["name"],
        "api": None if api == OWN_API.get(name, "openai-chat") else api,
        "context": row["contextWindow"],
        "output": row["maxTokens"],
        "reasoning": row["reasoning"] or None,
        "images": "image" in row["input"] or None,
        **prices_of(row, other),
        "cache": [cache["short"], cache["long"]] if cache else None,
        "max_request_bytes": limits.get("maxRequestBytes"),
        "max_images": (limits.get("images") or {}).get("maxPerRequest"),
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


KINDS = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)


def differences(name: str, rows: list[dict], prices: dict) -> list[str]:
    """Where litellm has another price for the same model, in any tier; prices that it does not
    have are not compared."""
    wrong = []
    for row in rows:
        other = prices.get(litellm_keys(name, row["id"])[0])
        if other is None or "price" not in row or "input_cost_per_token" not in other:
            continue
        for above, *ours in [[0, *row["price"]], *row.get("tiers", [])]:
            end = f"_above_{above // 1000}k_tokens" if above else ""
            theirs = [other.get(f"{kind}{end}") for kind in KINDS]
            pairs = [
                (round(price, 4), round(their * 1e6, 4))
                for price, their in zip(ours, theirs, strict=False)
                if their is not None
            ]
            if any(price != their for price, their in pairs):
                where = f"{name}/{row['id']}" + (f" above {above}" if above else "")
                told = [their for _, their in pairs]
                wrong.append(f"{where}: {[price for price, _ in pairs]}, litellm says {told}")
        ours = {f"_above_{tier[0] // 1000}k_tokens" for tier in row.get("tiers", [])}
        theirs = {key.removeprefix(KINDS[0]) for key in other if tier_key(key)}
        for end in sorted(theirs - ours):
            wrong.append(f"{name}/{row['id']}: no tier{end.replace('_', ' ')}, litellm has one")
    return wrong


def tier_key(key: str) -> bool:
    return key.startswith(f"{KINDS[0]}_above_") and key.endswith("k_tokens")


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
