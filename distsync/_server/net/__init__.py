"""Networking: sockets, TLS, limits."""
