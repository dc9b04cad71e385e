"""Proofs of identity."""
