"""The client for MCP servers: programs and web services that bring tools, prompts and resources."""
