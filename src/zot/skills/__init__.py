"""Skills: instructions in SKILL.md files."""
