"""Evaluation of a finished model: our episodes and the official programs, against one endpoint."""
