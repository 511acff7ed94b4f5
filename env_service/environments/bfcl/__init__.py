"""BFCL V3 multi-turn; the only folder that imports bfcl_eval."""
