"""The environment service of a run: its addresses, its start, its health.

In: `env_service` of a recipe, and of the environment BFCL_SCRIPT and BFCL_PATH (`.env`, see
example.env). Out: a service that answers and speaks our protocol, or a sentence on why not.
"""

import asyncio
import importlib.metadata
import os
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from omegaconf import DictConfig, ListConfig

from seal.environment.access_token import TOKEN_VARIABLE, TokenError, read_token
from seal.environment.addresses import url_list
from seal.environment.client import EnvironmentClient
from seal.launch import folders
from seal.launch.folders import RunError
from seal.launch.processes import Family, tail

SERVICE_ENVIRONMENT = ".venv-bfcl"
START_S = 120.0
"""Seconds a service has to become healthy; one on a network file system needs many."""


def check_service(recipe: DictConfig, attempts: int = 3) -> None:
    """Raise EnvironmentFault unless every service is healthy and speaks our protocol."""

    async def check() -> None:
        async with EnvironmentClient(
            urls(recipe),
            recipe.env_service.env_type,
            token=token(recipe),
            attempts=attempts,
            timeout_s=10.0,
        ) as client:
            await client.health()

    asyncio.run(check())


def check_can_start(recipe: DictConfig) -> None:
    """Refuse what `start_service` could not do, before anything is built for it.

    Raises:
        RunError: There are several addresses, the address cannot be listened on, the service's
            environment is missing, or BFCL_PATH and BFCL_SCRIPT cannot be used.
    """
    found = urls(recipe)
    if len(found) > 1:
        raise RunError(
            f"--with-bfcl starts one service, and env_service.env_url has {len(found)} addresses "
            f"({', '.join(found)}); start those yourself and leave --with-bfcl out, or name one"
        )
    _command(recipe)
    host, port = _host_and_port(found[0])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RunError(
                f"cannot use {host}:{port} for the environment service ({error.strerror}); end "
                "what runs there, or choose another: -- env_service.env_url=http://127.0.0.1:PORT"
            ) from error


def start_service(recipe: DictConfig, family: Family, log: Path) -> "subprocess.Popen[bytes]":
    """Start the environment service at `env_service.env_url` and wait until it is healthy.

    Raises:
        RunError: It cannot be started, ends, or does not become healthy; its log's end is shown.
        EnvironmentFault: What started does not speak our protocol or refuses our token.
    """
    check_can_start(recipe)
    url = urls(recipe)[0]
    host, port = _host_and_port(url)
    command, folder = _command(recipe)
    # What launch_script/bfcl.sh reads: whatever starts has to listen where the run looks for it.
    environment = {"BFCL_HOST": host, "BFCL_PORT": str(port)}
    secret = token(recipe)
    if secret is not None:
        environment[TOKEN_VARIABLE] = secret
    service = family.start(command, log, environment, folder)
    deadline = time.monotonic() + START_S
    while not _answers(f"{url}/healthz"):
        if service.poll() is not None:
            raise RunError(
                f"the environment service did not start (exit code {service.returncode}):\n"
                f"{tail(log)}\n(log: {log})"
            )
        if time.monotonic() > deadline:
            raise RunError(
                f"the environment service is not healthy after {START_S:.0f} s: no 200 from "
                f"{url}/healthz\n{tail(log)}\n(log: {log})"
            )
        time.sleep(0.2)
    check_service(recipe, attempts=1)
    return service


def urls(recipe: DictConfig) -> tuple[str, ...]:
    """The services' addresses.

    Raises:
        RunError: There is none, or one is no address.
    """
    value = recipe.env_service.env_url
    found = url_list(map(str, value) if isinstance(value, ListConfig) else [str(value)])
    if not found:
        raise RunError("env_service.env_url=[] has no address like http://127.0.0.1:8082")
    for url in found:
        _host_and_port(url)
    return found


def token(recipe: DictConfig) -> str | None:
    """The services' token, whatever folder the launcher was called from; None where none is given.

    Raises:
        RunError: What should be a token is none.
    """
    name = recipe.env_service.token_file
    try:
        return read_token(None if name is None else folders.ROOT / str(name))
    except TokenError as error:
        raise RunError(str(error)) from error


def service_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of packages in the service's environment on this machine."""
    site = folders.ROOT / SERVICE_ENVIRONMENT / "lib"
    found = {}
    for distribution in importlib.metadata.distributions(
        path=[str(path) for path in site.glob("python3*/site-packages")]
    ):
        if distribution.name in names:
            found[distribution.name] = distribution.version
    return found


def _command(recipe: DictConfig) -> tuple[list[str], Path]:
    """What starts the service, and the folder to run it in."""
    script, path = (os.environ.get(name, "").strip() for name in ("BFCL_SCRIPT", "BFCL_PATH"))
    if not script:
        if path:
            raise RunError(
                f"BFCL_PATH={path} is set and BFCL_SCRIPT is not: set the command that starts the "
                "service there, or neither (.env, see example.env)"
            )
        return _own_command(recipe), folders.ROOT
    folder = folders.ROOT / path
    if not folder.is_dir():
        raise RunError(f"BFCL_PATH={path} is no folder (.env, see example.env)")
    return ["bash", "-c", script], folder


def _own_command(recipe: DictConfig) -> list[str]:
    python = folders.ROOT / SERVICE_ENVIRONMENT / "bin/python"
    if not python.exists():
        raise RunError(
            f"the service's environment {SERVICE_ENVIRONMENT} is missing; run: bash install.sh"
        )
    host, port = _host_and_port(urls(recipe)[0])
    command = [str(python), "-m", "env_service", "--host", host, "--port", str(port)]
    return [*command, "--env", str(recipe.env_service.env_type)]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        address = urlsplit(url)
        if address.scheme == "http" and address.hostname and address.port:
            return address.hostname, address.port
    except ValueError:
        pass  # not a port; the sentence below says what is expected
    raise RunError(f"env_service.env_url={url!r} is no address like http://127.0.0.1:8082")
