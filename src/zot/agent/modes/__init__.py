"""The ways to run the agent: rpc, json, print, interactive."""
