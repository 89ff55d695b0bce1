"""Skills: what a SKILL.md adds."""
