"""Authentication by SASL and TLS certificates."""
