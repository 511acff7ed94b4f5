"""The environment service of a run: its addresses, its start, its health.

In: `env_service` of a recipe, and the environment variables BFCL_SCRIPT and BFCL_PATH (`.env`, see
example.env). Out: a service that answers and speaks our protocol, or an error that says why not.
"""

import asyncio
import importlib.metadata
import os
import subprocess
from pathlib import Path

from omegaconf import DictConfig, ListConfig

from seal.client.access_token import TOKEN_VARIABLE, TokenError, read_token
from seal.client.addresses import host_and_port, url_list
from seal.client.client import EnvironmentClient
from seal.launch import folders
from seal.launch.folders import RunError
from seal.launch.listening import check_port, wait_until_healthy
from seal.launch.processes import Family

SERVICE_ENVIRONMENT = ".venv-bfcl"
START_S = 120.0
"""Seconds until a service has to be healthy; on a network file system it starts slowly."""


def check_service(recipe: DictConfig, attempts: int = 3) -> None:
    """Check that every service is healthy and speaks our protocol.

    Raises:
        EnvironmentFault: A service is not healthy or speaks another protocol.
    """

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
    """Check that `start_service` can start the service, before the run builds a policy.

    Raises:
        RunError: The recipe has several addresses, no server can listen at the address, the
            service's environment is missing, or BFCL_PATH and BFCL_SCRIPT cannot be used.
    """
    addresses = urls(recipe)
    if len(addresses) > 1:
        raise RunError(
            f"--with-bfcl starts one service, and env_service.env_url has {len(addresses)} "
            f"addresses ({', '.join(addresses)}); start them yourself without --with-bfcl, or name "
            "one address"
        )
    _command(recipe)
    host, port = _host_and_port(addresses[0])
    try:
        check_port(host, port)
    except OSError as error:
        raise RunError(
            f"cannot use {host}:{port} for the environment service ({error.strerror}); end the "
            "program that uses it, or choose another port: -- "
            "env_service.env_url=http://127.0.0.1:PORT"
        ) from error


def start_service(recipe: DictConfig, family: Family, log: Path) -> subprocess.Popen[bytes]:
    """Start the environment service at `env_service.env_url` and wait until it is healthy.

    Raises:
        RunError: It cannot be started, ends, or does not become healthy; the error shows the end
            of its log.
        EnvironmentFault: It does not speak our protocol, or refuses our token.
    """
    check_can_start(recipe)
    url = urls(recipe)[0]
    host, port = _host_and_port(url)
    command, folder = _command(recipe)
    # launch_script/bfcl.sh reads these: the service has to listen where the run expects it.
    environment = {"BFCL_HOST": host, "BFCL_PORT": str(port)}
    secret = token(recipe)
    if secret is not None:
        environment[TOKEN_VARIABLE] = secret
    service = family.start(command, log, environment, folder)
    wait_until_healthy("the environment service", service, f"{url}/healthz", log, START_S)
    check_service(recipe, attempts=1)
    return service


def urls(recipe: DictConfig) -> tuple[str, ...]:
    """The services' addresses.

    Raises:
        RunError: The recipe has no address, or one of them is malformed.
    """
    value = recipe.env_service.env_url
    addresses = url_list(map(str, value) if isinstance(value, ListConfig) else [str(value)])
    if not addresses:
        raise RunError("env_service.env_url=[] is empty; name an address, http://127.0.0.1:8082")
    for url in addresses:
        _host_and_port(url)
    return addresses


def token(recipe: DictConfig) -> str | None:
    """The services' access token; None if the recipe and the environment name none.

    The file that the recipe names is relative to the project's folder.

    Raises:
        RunError: The token cannot be read, or is malformed.
    """
    name = recipe.env_service.token_file
    try:
        return read_token(None if name is None else folders.ROOT / str(name))
    except TokenError as error:
        raise RunError(str(error)) from error


def service_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of packages in the service's environment on this machine."""
    library = folders.ROOT / SERVICE_ENVIRONMENT / "lib"
    sites = [str(path) for path in library.glob("python3*/site-packages")]
    installed = importlib.metadata.distributions(path=sites)
    return {package.name: package.version for package in installed if package.name in names}


def _command(recipe: DictConfig) -> tuple[list[str], Path]:
    """The command that starts the service, and the folder to run it in."""
    script, path = (os.environ.get(name, "").strip() for name in ("BFCL_SCRIPT", "BFCL_PATH"))
    if not script:
        if path:
            raise RunError(
                f"BFCL_PATH={path} is set and BFCL_SCRIPT is not: set BFCL_SCRIPT to the command "
                "that starts the service, or set neither (.env, see example.env)"
            )
        return _own_command(recipe), folders.ROOT
    folder = folders.ROOT / path
    if not folder.is_dir():
        raise RunError(f"BFCL_PATH={path} is not a folder (.env, see example.env)")
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


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        return host_and_port(url)
    except ValueError as error:
        raise RunError(f"env_service.env_url={url!r}: {error}") from None
