"""The environment service of a run: its addresses, its start, its health.

In: `env_service` of a recipe, and the environment variables BFCL_SCRIPT and BFCL_PATH (`.env`, see
example.env). Out: a service that answers and speaks our protocol, or an error that says why not.
"""

import asyncio
import importlib.metadata
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, ListConfig

from seal.client.access_token import TOKEN_VARIABLE, TokenError, read_token
from seal.client.addresses import host_and_port, url_list
from seal.client.client import EnvironmentClient
from seal.launch import folders
from seal.launch.folders import RunError
from seal.launch.listening import check_port, wait_until_healthy
from seal.launch.pools import TASKS, service_file
from seal.launch.processes import Family

SERVICE_ENVIRONMENT = ".venv-bfcl"
TASKS_VARIABLE = "BFCL_TASKS"
"""Tells launch_script/bfcl.sh which pools the service plays: paths, with colons between them."""
START_S = 120.0
"""Seconds until a service has to be healthy; on a network file system it starts slowly."""


def check_service(
    recipe: DictConfig, attempts: int = 3, pools: Mapping[str, str] | None = None
) -> None:
    """Check that every service is healthy, speaks our protocol and plays the pools of a run.

    Args:
        recipe: Resolved recipe.
        attempts: How often an address that does not answer is asked.
        pools: Hash of the tasks of each pool, by its name (`seal.launch.pools`).

    Raises:
        EnvironmentFault: A service is not healthy or speaks another protocol.
        RunError: A service does not play a pool, or plays another one of that name.
    """

    async def check() -> Mapping[str, Mapping[str, str]]:
        async with EnvironmentClient(
            urls(recipe),
            recipe.env_service.env_type,
            token=token(recipe),
            attempts=attempts,
            timeout_s=10.0,
        ) as client:
            return await client.health()

    for url, theirs in asyncio.run(check()).items():
        for name, sha256 in (pools or {}).items():
            _check_played(url, name, sha256, theirs.get(name))


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


def start_service(
    recipe: DictConfig, family: Family, log: Path, pools: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the environment service at `env_service.env_url` and wait until it is healthy.

    Args:
        recipe: Resolved recipe.
        family: Processes of the launch.
        log: File for the service's output.
        pools: Pools that it plays, with the hashes of their tasks (`seal.launch.pools`).

    Raises:
        RunError: It cannot be started, ends, does not become healthy, or does not play the pools;
            the error shows the end of its log.
        EnvironmentFault: It does not speak our protocol, or refuses our token.
    """
    check_can_start(recipe)
    url = urls(recipe)[0]
    host, port = _host_and_port(url)
    command, folder = _command(recipe)
    # launch_script/bfcl.sh reads these: the service has to listen where the run expects it.
    tasks = [str(service_file(name)) for name in pools or ()]
    environment = {"BFCL_HOST": host, "BFCL_PORT": str(port), TASKS_VARIABLE: ":".join(tasks)}
    if tasks and not os.environ.get("BFCL_SCRIPT", "").strip():
        command += ["--tasks", *tasks]
    secret = token(recipe)
    if secret is not None:
        environment[TOKEN_VARIABLE] = secret
    service = family.start(command, log, environment, folder)
    wait_until_healthy("the environment service", service, f"{url}/healthz", log, START_S)
    check_service(recipe, attempts=1, pools=pools)
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


def service_python() -> Path:
    """Python of the service's environment on this machine.

    Raises:
        RunError: There is no such environment.
    """
    python = folders.ROOT / SERVICE_ENVIRONMENT / "bin/python"
    if not python.exists():
        raise RunError(
            f"the service's environment {SERVICE_ENVIRONMENT} is missing; run: bash install.sh"
        )
    return python


def _check_played(url: str, name: str, sha256: str, theirs: str | None) -> None:
    """Raise a RunError if a service does not play a pool, or plays another one of that name."""
    if theirs is None:
        raise RunError(
            f"the service at {url} does not play the pool {name}: start it with --tasks "
            f"{TASKS / name}.tasks.jsonl (env_service/launch_script/bfcl.sh also takes the "
            f"variable {TASKS_VARIABLE})"
        )
    if theirs != sha256:
        raise RunError(
            f"the service at {url} plays another pool {name} ({theirs:.12}) than "
            f"data/synthetic/{name}.report.json describes ({sha256:.12}): make it again on both "
            "machines with the same command and the same version of the project, or copy all three "
            "files of one machine, and restart the service"
        )


def _own_command(recipe: DictConfig) -> list[str]:
    python = service_python()
    host, port = _host_and_port(urls(recipe)[0])
    command = [str(python), "-m", "env_service", "--host", host, "--port", str(port)]
    return [*command, "--env", str(recipe.env_service.env_type)]


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        return host_and_port(url)
    except ValueError as error:
        raise RunError(f"env_service.env_url={url!r}: {error}") from None
