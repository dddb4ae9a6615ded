"""Pieces of work on a Ray cluster, or on the processors and GPUs of this machine: the one module that imports Ray.

An actor is a worker: it opens encoder and samples once, and does one piece after the other. Between processes Ray sends
Python objects, which only trusted senders may send: its ports belong into a closed network.
"""

import contextlib
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from typing import Any, Generic

from counterpoint.core import __version__
from counterpoint.core.errors import MAX_LINE, CounterpointError, RunError, UsageError
from counterpoint.core.ranks import Item, Result, State, Workers

AHEAD = 2  # pieces at each worker at a time: the second begins as soon as the first ends
RETRIES = 3  # most retries of a piece whose worker died
RESTARTS = 100  # most restarts of a worker: a job of days loses many machines
AWAY_SECONDS = 600.0  # longest time without any worker
CONNECT_SECONDS, PORT = 5.0, 6379
GOES_ON = "what is finished stays, and the same command goes on"
ON_THIS_MACHINE = ("auto", "local")
LIBRARIES = ("torch", "Pillow")  # on which figures may depend


@dataclass(frozen=True)
class RayEngine:
    """An engine whose workers run on Ray.

    Attributes:
        address: ``local`` starts Ray on this machine until the work ends; ``auto`` is the cluster that this machine
            belongs to; else HOST, HOST:PORT, or ray://HOST:PORT.
        workers: the number of workers; None is one per GPU of the cluster, or per processor if it has none.
        gpus_per_worker: share of a GPU for each; None is 1 where the cluster has GPUs, else 0.
    """

    address: str = "local"
    workers: int | None = None
    gpus_per_worker: float | None = None

    @contextlib.contextmanager
    def opened(self, begin: Callable[[], State]) -> Iterator[Workers[State]]:
        """Start the workers; they and a Ray that was started here end with the block.

        A Ray that the caller has initialised is used as it is, whatever the address.

        Raises:
            UsageError: Ray is missing, the cluster cannot be reached, has other versions or too little.
        """
        ray = require_ray()
        is_own = not ray.is_initialized()
        # Ray reports dead workers on standard output, which is for the answers of a verb.
        with contextlib.redirect_stdout(sys.stderr):
            if is_own:
                _connect(ray, self.address)
            workers = list[Any]()
            try:
                options, number = self._share(ray.cluster_resources())
                # Kept here for workers that start again: Ray would have freed their arguments.
                job = ray.put(_Job(begin, os.getcwd(), versions()))
                actor = ray.remote(_Worker).options(**options, max_restarts=RESTARTS, max_task_retries=RETRIES)
                workers += [actor.remote([job]) for _ in range(number)]
                yield _RayWorkers(ray, workers)
            finally:
                for worker in workers:
                    ray.kill(worker)
                if is_own:
                    ray.shutdown()

    def _share(self, resources: dict[str, float]) -> tuple[dict[str, float], int]:
        gpus, cpus = resources.get("GPU", 0.0), resources.get("CPU", 1.0)
        share = self.gpus_per_worker if self.gpus_per_worker is not None else float(gpus > 0)
        number = self.workers or max(1, int(gpus / share if share else cpus))
        # Ray takes whole GPUs, or a part of one.
        fitting = number if not share else int(gpus / share)
        if fitting < number:
            raise UsageError(
                f"the cluster has {gpus:g} GPUs, too few for {number} workers with {share:g} each; choose fewer "
                "--workers or a smaller --gpus-per-worker"
            )
        own = cpus / number
        return {"num_cpus": float(int(own)) if own >= 1 else own, "num_gpus": share}, number


@dataclass(frozen=True)
class _Job(Generic[State]):
    begin: Callable[[], State]
    folder: str
    versions: dict[str, str]


class _Worker(Generic[State]):
    """An actor that opens its state when the first piece comes, so that an error reaches the caller with its cause.

    Args:
        job: reference to a ``_Job``, in a list that keeps Ray from reading it.
    """

    def __init__(self, job: list[Any]) -> None:
        self._job, self._state = job, list[State]()

    def answer(self) -> None:
        """Answer that the actor is there, without opening its state."""

    def run(self, work: Callable[..., Result], *items: Any) -> Result:
        if not self._state:
            job: _Job[State] = require_ray().get(self._job[0])
            check_versions(job.versions)
            # Paths of the command line are relative to the folder in which it was given.
            with contextlib.suppress(OSError):
                os.chdir(job.folder)
            self._state.append(job.begin())
        return work(self._state[0], *items)


class _LostWorkerError(RunError):
    """A worker or its node died."""


@dataclass(frozen=True)
class _RayWorkers(Generic[State]):
    ray: Any
    actors: list[Any]

    def ask(self, question: Callable[[State], Result]) -> Result:
        """Return the answer of the first actor; the others open what they need meanwhile."""
        answers = [actor.run.remote(question) for actor in self.actors]
        return self._result(answers[0], "opening")

    def each(self, work: Callable[[State, Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Give each actor a few pieces at a time, and another one when one ends.

        A piece whose actor died goes to whichever is free. The actor gets the next one once it answers: while a node is
        away, any number of tries fails at once.
        """
        waiting, again, failed = iter(items), list[Item](), list[Item]()
        running, probes, idle = dict[Any, tuple[Any, Item]](), dict[Any, Any](), list[Any]()

        def give(actor: Any) -> None:
            for item in [again.pop()] if again else islice(waiting, 1):
                running[actor.run.options(max_task_retries=0).remote(work, item)] = (actor, item)
                return
            idle.append(actor)

        for actor in self.actors * AHEAD:
            give(actor)
        while running or again:
            ended, _ = self.ray.wait([*running, *probes], timeout=None if running else AWAY_SECONDS)
            if not ended:
                raise RunError(f"no worker came back within {AWAY_SECONDS:g} s; {GOES_ON}")
            if ended[0] in probes:
                self._result(ended[0], "a worker")
                give(probes.pop(ended[0]))
                continue
            actor, item = running.pop(ended[0])
            try:
                result = self._result(ended[0], f"piece {item}")
            except _LostWorkerError:
                failed.append(item)
                if failed.count(item) > RETRIES:
                    raise
                again.append(item)
                probes.update({each.answer.options(max_task_retries=-1).remote(): each for each in (actor, *idle)})
                idle.clear()
                continue
            give(actor)
            yield item, result

    def _result(self, reference: Any, title: str) -> Any:
        """Return the result of a worker, or raise its error as one of ours."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CounterpointError):
                raise error.cause from None
            raise RunError(f"{title}: a worker failed: {_line(error.cause)}") from None
        except self.ray.exceptions.RayError as error:
            raise _LostWorkerError(
                f"{title}: its worker died {RETRIES + 1} times, or could not begin: {_line(error)}; {GOES_ON}"
            ) from None


def require_ray() -> Any:
    """Import Ray.

    Raises:
        UsageError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends statistics to its makers
    try:
        import ray  # deferred: the extra `ray` may be absent, and is loaded for its engine only
    except ImportError:
        raise UsageError("--engine ray needs Ray; install it with: pip install 'counterpoint[ray]'") from None
    return ray


def versions() -> dict[str, str]:
    """List the versions that must be the same on all nodes; Ray compares its own version itself."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"counterpoint": __version__, "Python": python} | {name: version(name).split("+")[0] for name in LIBRARIES}


def check_versions(expected: dict[str, str]) -> None:
    """Require a worker's versions to be those of the process that gives the work.

    Raises:
        UsageError: a version differs; the error names the node and the version.
    """
    for name, own in versions().items():
        if own != expected[name]:
            raise UsageError(
                f"node {socket.gethostname()} has {name} {own}, and this command {expected[name]}; install the "
                "same on all nodes"
            )


def _connect(ray: Any, address: str) -> None:
    if address not in ON_THIS_MACHINE:
        address = address if ":" in address else f"{address}:{PORT}"
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:  # Ray would try for minutes where no server listens
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--address {address}: the Ray cluster cannot be reached: {_line(error)}; `ray start --head` prints "
                "its address"
            ) from None
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        raise UsageError(f"--address {address}: no Ray cluster that can be used: {_line(error)}") from None


def _line(error: BaseException) -> str:
    """Write the text of an error in one line; of a traceback, only its last line."""
    lines = str(error).strip().splitlines()
    chosen = lines[-1:] if any(line.startswith("Traceback") or "traceback:" in line for line in lines) else lines
    return " ".join(" ".join(chosen).split())[:MAX_LINE] or type(error).__name__
