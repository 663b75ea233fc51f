"""A Ray cluster to compute on: one of this machine that nobody else can reach, or one that is there already."""

import ipaddress
import logging
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from identiscope.errors import InputError

#: Seconds to wait for a cluster to answer, before a Run and during it.
PATIENCE = 10.0
#: Seconds between looks at a cluster that works.
_EVERY = 10.0
_FORMS = "auto (the cluster that this machine is in), HOST:PORT, or ray://HOST:PORT"
_ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


class LostCluster(InputError):
    """A Ray cluster that was there does not answer any more."""


def check_ray(address: str | None) -> None:
    """Refuse, before any work, to go without Ray, or to an address where no cluster answers."""
    if address is not None and address != "auto":
        _check_form(address)
    ray = import_ray()
    if address is not None and not ray.is_initialized():
        _reach(_resolved(address))


def import_ray() -> Any:
    """Ray, which is an extra."""
    try:
        import ray
    except ImportError as error:
        raise InputError('the Ray engine needs Ray: pip install "identiscope[ray]".') from error
    return ray


def lost_connection() -> tuple[type[BaseException], ...]:
    """What is raised when a cluster is gone: what Ray's client says, and gRPC, where that is there."""
    try:
        import grpc
    except ImportError:
        return (ConnectionError,)
    return (ConnectionError, grpc.RpcError)


@contextmanager
def connected(workers: int, address: str | None) -> Iterator["Health"]:
    """Be connected to the cluster at `address`, or to one of this machine that ends with the block.

    Where the program has connected to Ray by itself, that is used, and stays.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield Health(None)
        return
    if address is None:
        with _quiet(), _local_cluster(ray, workers):
            yield Health(ray.get_runtime_context().gcs_address)
        return
    where = _resolved(address)
    _reach(where)
    with _quiet():
        _join(ray, where)
        health = Health(where)
        try:
            yield health
        finally:
            # Of a cluster that is lost there is nobody to take leave of.
            with suppress(*(lost_connection() if health.lost else ())):
                ray.shutdown()


def _join(ray: Any, address: str) -> None:
    for left in reversed(range(_TRIES)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            return
        except Exception as error:  # of many kinds: what Ray finds wrong with a cluster is all one here
            # A head that is busy does not always begin to serve a client in the time that Ray gives it.
            if not left or not isinstance(error, ConnectionError):
                raise InputError(f"the Ray cluster at {address} cannot be used: {error}") from error


@contextmanager
def _local_cluster(ray: Any, workers: int) -> Iterator[None]:
    """A cluster that listens on the loopback interface alone, without a dashboard; its files go with it."""
    _remove_left()
    folder = tempfile.mkdtemp(prefix=_FOLDER, dir=_temporary())
    lock = _lock(folder)
    try:
        with _on_loopback():
            ray.init(
                address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False,
                logging_level=logging.ERROR, _node_ip_address=_LOOPBACK, _temp_dir=folder,
            )  # fmt: skip
        listens = ray.util.get_node_ip_address()
        if not ipaddress.ip_address(listens).is_loopback:
            raise InputError(
                f"Ray {ray.__version__} would listen on {listens}, for all who reach this machine, and not on"
                f" {_LOOPBACK} as it was told; use another version, or the local engine with --workers."
            )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _temporary() -> str:
    """Where temporary files are; names of sockets begin with it, and they have at most 107 bytes."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"


def _lock(folder: str) -> int | None:
    """A handle that locks a folder for as long as this process lives; None if another process has it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_left() -> None:
    """Remove the folders of our clusters whose process was killed: they are ours, and not locked."""
    with os.scandir(_temporary()) as entries:
        ours = [entry for entry in entries if re.fullmatch(re.escape(_FOLDER) + "[a-z0-9_]{8}", entry.name)]
    for entry in ours:
        with suppress(OSError):
            facts = entry.stat(follow_symlinks=False)
            # One that was made just now may not be locked yet.
            if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _JUST_NOW:
                continue
            lock = _lock(entry.path)
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


_LOOPBACK = "127.0.0.1"
_FOLDER = "identiscope-ray-"
_LONGEST = 16
_JUST_NOW = 60.0
_TRIES = 3
#: Off macOS and Windows, Ray takes another address for the loopback one unless this says that it is no cluster.
_NO_CLUSTER = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextmanager
def _on_loopback() -> Iterator[None]:
    """What Ray needs to start with the loopback address: in this process, and in those that it starts."""
    from ray._private import ray_constants

    before, cluster = os.environ.get(_NO_CLUSTER), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_NO_CLUSTER] = "0"
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        if before is None:
            del os.environ[_NO_CLUSTER]
        else:
            os.environ[_NO_CLUSTER] = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray says of its own processes off the terminal: a Run has its own words for what is lost."""
    from ray._private import worker

    before, worker._worker_logs_enabled = getattr(worker, "_worker_logs_enabled", True), False
    # The threads of Ray's client speak of a lost connection as an error, and go on for a while when it is over. That of
    # its logs has a level of its own, which Ray sets when it connects.
    client, logs = (logging.getLogger(f"ray.util.client{name}") for name in ("", ".logsclient"))
    said = client.level, logs.disabled
    client.setLevel(logging.CRITICAL)
    logs.disabled = True
    try:
        yield
    except LostCluster:
        said = logging.CRITICAL, True
        raise
    finally:
        worker._worker_logs_enabled = before
        client.setLevel(said[0])
        logs.disabled = said[1]


class Health:
    """Whether a cluster still answers, and is the one it was.

    Ray would wait for a minute and then end the program, or, if the head was started again, wait for ever.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.cluster = _cluster_id(address)
        self.lost = False
        self.looked = time.monotonic()

    def look(self) -> None:
        """Check now and then, also while all seems well: workers go on for some time without a head."""
        if time.monotonic() - self.looked >= _EVERY:
            self.check()

    def check(self) -> None:
        """Wait for the cluster to answer, but not for long: then it is a `LostCluster`."""
        end = time.monotonic() + PATIENCE
        while self.address is not None and not _listens(self.address, 2.0):
            if time.monotonic() >= end:
                self.give_up("does not answer any more")
            time.sleep(0.5)
        if _cluster_id(self.address) != self.cluster:
            self.give_up("was started anew and knows nothing of this Run")
        self.looked = time.monotonic()

    def give_up(self, why: str) -> NoReturn:
        """Say that the cluster is lost, and what is not."""
        self.lost = True
        raise LostCluster(
            f"the Ray cluster at {self.address} {why}. All shards written before are whole; once the cluster is there"
            " again, or on another one, the same command goes on."
        )


def _cluster_id(address: str | None) -> str | None:
    """Which cluster answers at an address; None where that cannot be asked, through Ray's client."""
    if address is None or address.startswith("ray://"):
        return None
    return str(import_ray()._raylet.GcsClient(address=address).cluster_id.hex())


def _resolved(address: str) -> str:
    """An address in a form that can be reached: HOST:PORT or ray://HOST:PORT."""
    if address == "auto":
        from ray._private import services

        try:
            bootstrap = services.canonicalize_bootstrap_address_or_die("auto")
        except (ConnectionError, ValueError) as error:
            raise InputError(f"no Ray cluster answers at auto: {error}") from error
        address = str(bootstrap)
    _check_form(address)
    return address


def _check_form(address: str) -> None:
    matched = _ADDRESS.fullmatch(address)
    if matched is None or not 0 < int(matched[3]) < 2**16:
        raise InputError(f"the address {address!r} was given; expected {_FORMS}.")


def _reach(address: str) -> None:
    if not _listens(address, PATIENCE / 2) or not _speaks(address, PATIENCE / 2):
        raise InputError(
            f"no Ray cluster answers at {address}. Is it running, is this its port, and may this machine reach it?"
        )


def _listens(address: str, seconds: float) -> bool:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _speaks(address: str, seconds: float) -> bool:
    """Whether what listens there is Ray; anything else, other servers of gRPC too, would be waited for in vain."""
    client = address.startswith("ray://")
    try:
        import grpc
    except ImportError as error:
        if client:
            raise InputError('an address ray://… needs Ray\'s client: pip install "identiscope[ray]".') from error
        return True
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True
    question = "/ray.rpc.RayletDriver/ClusterInfo" if client else "/ray.rpc.NodeInfoGcsService/GetClusterId"
    # Without a proxy, as Ray itself goes.
    with grpc.insecure_channel(address.removeprefix("ray://"), [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(question)(b"", timeout=seconds)
        except grpc.RpcError as error:
            # Ray may want to know more of who asks; what is not Ray does not know the question.
            return error.code().name in ("FAILED_PRECONDITION", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED")
    return True
