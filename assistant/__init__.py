"""Nightshift: an operations assistant for clusters that train large language models."""

__version__ = "0.1.0"
