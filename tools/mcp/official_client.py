"""Lists and calls the tools of a server with the official client of the Model Context Protocol.

Arguments: the URL of `/mcp`, the mode (`legacy` or a protocol revision), the tool name of a workload, and the identifier
of a run.
"""

import asyncio
import sys

from mcp import Client


async def walk(address: str, mode: str, tool: str, execution: str) -> None:
    async with Client(address, mode=mode) as client:
        listed = {entry.name: entry for entry in (await client.list_tools()).tools}
        print("tools", " ".join(sorted(listed)))
        assert listed[tool].input_schema["properties"]["ticket"]["type"] == "string", listed[tool]
        ran = await client.call_tool(tool, {"ticket": "a refund"})
        assert not ran.is_error, ran
        print(tool, ran.structured_content["status"], ran.structured_content["result"]["status"])
        evidence = await client.call_tool("inspect_evidence", {"execution_id": execution, "format": "graph"})
        print("inspect_evidence", evidence.structured_content["status"])
        wrong = await client.call_tool("execute_flow", {"workload_slug": "nothing", "environment": "dev"})
        assert wrong.is_error, wrong
        print("execute_flow", wrong.structured_content["error"])


asyncio.run(walk(*sys.argv[1:]))
