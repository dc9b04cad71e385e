"""Recipes that keep one thing that all share."""
