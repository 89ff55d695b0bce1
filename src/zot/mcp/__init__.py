"""Client for MCP servers: programs and web services that offer tools, prompts and resources."""
