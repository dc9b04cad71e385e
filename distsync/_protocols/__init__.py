"""Protocols: recipes as coroutines over steps, which the drivers of _client execute."""
