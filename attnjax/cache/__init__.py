"""Caches of keys and values for decoding: the pattern decides what is kept. Plain pytrees, static shapes."""

from attnjax.cache.cache import Cache as Cache
