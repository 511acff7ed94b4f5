"""The environment service: multi-turn tool-use environments behind the HTTP wire of seal.wire."""
