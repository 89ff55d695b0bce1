"""Print the table of providers for docs/providers.md; a test compares the two."""

from __future__ import annotations

from zot.provider.providers import PROVIDERS

HEAD = "| provider | other names | API | address | key | default model |"


def table() -> str:
    lines = [HEAD, "| --- | --- | --- | --- | --- | --- |"]
    for row in PROVIDERS.values():
        key = ", ".join(f"`{name}`" for name in row.env) or "none"
        cells = [
            f"`{row.name}`",
            ", ".join(row.aliases),
            row.api,
            row.base_url or ", ".join(f"`{name}`" for name in row.base_url_env),
            f"{key} (optional)" if row.key_optional and row.env else key,
            f"`{row.default_model}`" if row.default_model else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
