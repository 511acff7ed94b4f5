"""A backbone's tokenizer and chat template: loading, checks, prompts and their token budget."""
