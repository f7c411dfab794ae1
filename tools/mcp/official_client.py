"""Lists and calls the tools of a server with the official client of the Model Context Protocol.

Arguments: the URL of `/mcp`, the mode (`legacy` or a protocol revision), the tool name of a workload, and the identifier
of a run.
"""

import asyncio
import sys

from mcp import Client


async def call_tools(address: str, mode: str, tool: str, execution: str) -> None:
    async with Client(address, mode=mode) as client:
        tools = {entry.name: entry for entry in (await client.list_tools()).tools}
        print("tools", " ".join(sorted(tools)))
        assert tools[tool].input_schema["properties"]["ticket"]["type"] == "string", tools[tool]
        result = await client.call_tool(tool, {"ticket": "a refund"})
        assert not result.is_error, result
        print(tool, result.structured_content["status"], result.structured_content["result"]["status"])
        evidence = await client.call_tool("inspect_evidence", {"execution_id": execution, "format": "graph"})
        print("inspect_evidence", evidence.structured_content["status"])
        failure = await client.call_tool("execute_flow", {"workload_slug": "nothing", "environment": "dev"})
        assert failure.is_error, failure
        print("execute_flow", failure.structured_content["error"])


asyncio.run(call_tools(*sys.argv[1:]))
