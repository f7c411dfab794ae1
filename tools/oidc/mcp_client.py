"""Calls a tool of a server with the official MCP client, which obtains its token by discovery.

The client reads the address of the server's metadata from the 401 response, then the metadata of the server and of the
identity provider, and requests a token for the server's audience.

Arguments: the URL of `/mcp`, the issuer, and the identifier and the secret of a client.
"""

import asyncio
import sys

import httpx2
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client


class Storage:
    """Stores the client's tokens in memory."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def call_tool(address: str, issuer: str, client: str, secret: str) -> None:
    requested = []

    async def record_request(request):
        requested.append(str(request.url))

    storage = Storage()
    auth = ClientCredentialsOAuthProvider(address, storage, client, secret, issuer=issuer)
    async with httpx2.AsyncClient(auth=auth, event_hooks={"request": [record_request]}, timeout=60) as http:
        async with Client(streamable_http_client(address, http_client=http)) as session:
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert "run_ticket_classifier" in tools, tools
            arguments = {"workload_slug": "ticket-classifier", "environment": "dev", "inputs": {"ticket": "a refund"}}
            result = await session.call_tool("execute_flow", arguments)
            assert not result.is_error, result
            result = result.structured_content["result"]
            print(result["status"], result["execution_id"])
    assert storage.tokens is not None, requested


asyncio.run(call_tool(*sys.argv[1:]))
