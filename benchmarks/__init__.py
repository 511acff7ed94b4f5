"""Measurements of the service, the loop, a training step, and of GPUs."""

from seal import ROOT

SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"
TRAINER_PYTHON = ROOT / ".venv/bin/python"
