"""zot as an MCP server: other agents hand it a task, and get its answer."""
