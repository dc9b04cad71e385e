"""Sockets, TLS, limits: asyncio's side of the server."""
