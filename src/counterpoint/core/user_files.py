"""Files that a user names: on disk regular ones, read up to a bound; or objects at addresses such as s3://bucket/photos.

A pipe would be waited for and a device need not end, whatever their names are. A reader of data opens its files here.
Addresses are read by pyarrow's file systems (extra ``search``), and this is the one module that imports pyarrow.
Credentials, regions and endpoints are the library's: it reads the environment (AWS_PROFILE, AWS_ENDPOINT_URL, ...) and
the usual files. hf:// needs huggingface_hub beside it. file:///photos is a folder of a disk, dealt with as a store is:
data of very many samples are listed, and no name stays in memory.
"""

import io
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache, cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

from counterpoint.core.errors import CounterpointError, RunError, StoreError, UsageError, first_line
from counterpoint.core.operating_system import NO_WAIT

Answer = TypeVar("Answer")
Stamp = tuple[int, int]  # size of a file and its time in ns, which tell cheaply that it may have changed
MOST_FILES = 100_000  # of a folder that are held at once
SCHEME = re.compile(r"[a-z][a-z0-9+]+://[^/]|file:///[^/]")  # of two letters at least: C:// is a drive
SCAN_BYTES = 1 << 20  # that one request to a store asks for, which takes as long as a short one
SHARD_PLAN = "plan.json"  # the file of a folder of shards that says which table they are of
MAX_TEXT_BYTES = 1 << 29  # five million lines of a hundred letters
OTHER_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

if TYPE_CHECKING:  # typed as a path on disk, since it answers what readers and writers of data ask of one
    BasePath = Path
else:
    BasePath = PurePosixPath


class Address(BasePath):
    """A file or folder at an address, with those methods of ``pathlib.Path`` that readers and writers of data use.

    The object that was listed or opened first is the one it stands for: another one in its place is an error.

    >>> Address("s3://bucket/photos") / "cats" / "a.jpg"
    Address('s3://bucket/photos/cats/a.jpg')
    """

    stamp: Stamp | None = None  # of a file that was listed
    _version: tuple[int, bytes] | None = None  # size and ETag when it was opened first

    if not TYPE_CHECKING:

        def __str__(self) -> str:
            # A path has one slash where an address has two, or three.
            return super().__str__().replace(":/", ":///" if self.parts[0] == "file:" else "://", 1)

        def __repr__(self) -> str:
            return f"Address({str(self)!r})"

        def __reduce__(self) -> tuple[Any, ...]:
            return Address, (str(self),), self.__dict__

    def exists(self) -> bool:
        """Tell whether a file or folder is there.

        Raises:
            StoreError: the store refuses to say.
        """
        return self._info().type.name != "NotFound"

    def is_file(self) -> bool:
        """Tell whether a file is there; raises as ``exists``."""
        return self.stamp is not None or self._info().type.name == "File"

    def is_dir(self) -> bool:
        """Tell whether names of files begin with this address; raises as ``exists``."""
        return self.stamp is None and self._info().type.name == "Directory"

    def mkdir(self, mode: int = 0, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders of a store are beginnings of names."""

    def iterdir(self) -> Generator[Self, None, None]:
        """Files and folders in it, sorted; none if nothing is there.

        Raises:
            StoreError: the store refuses.
        """
        selector = require_arrow(str(self)).fs.FileSelector

        def listed(system: Any, key: str) -> dict[str, Stamp | None]:
            # For gs:// pyarrow lists no folder that is only the beginning of names.
            is_deep, stamps = system.type_name == "gcs", dict[str, Stamp | None]()
            for info in system.get_file_info(selector(key, allow_not_found=True, recursive=is_deep)):
                inner = info.path[len(key) + 1 :] if is_deep else info.base_name
                name, slash, _ = inner.partition("/")
                stamps[name] = None if slash or info.type.name != "File" else _stamp(info)
            return stamps

        for name, stamp in sorted(self._ask(listed).items()):
            entry = self / name
            entry.stamp = stamp
            yield entry

    def walk_files(self) -> Iterator[Self]:
        """Files at any depth that are not hidden, sorted; the names of one folder are held. Raises as ``iterdir``."""
        for entry in self.iterdir():
            if entry.name.startswith("."):
                continue
            if entry.stamp is None:
                yield from entry.walk_files()
            else:
                yield entry

    @cached_property
    def files(self) -> tuple[Self, ...]:
        """The first ``MOST_FILES`` + 1 of ``walk_files``: several readers look whether a folder is theirs."""
        return tuple(islice(self.walk_files(), MOST_FILES + 1))

    def stamped(self) -> Stamp:
        """Size and time, as they were listed or else are now.

        Raises:
            FileNotFoundError: no file is there.
            StoreError: the store refuses.
        """
        info = None if self.stamp else self._info()
        if info is not None and info.type.name != "File":
            raise FileNotFoundError(f"no such file: {self}")
        return self.stamp or _stamp(info)

    def open_input(self) -> Any:
        """The object as a file of pyarrow that is read anywhere.

        Raises:
            FileNotFoundError: it is not there.
            StoreError: another object is in its place, or the store refuses.
        """
        file = self._ask(lambda system, key: system.open_input_file(key))
        tags: dict[str, bytes] = {}
        with suppress(OSError, NotImplementedError):  # not every store has them
            tags = file.metadata() or {}
        time = tags.get("Last-Modified")
        seconds = int(datetime.fromisoformat(time.decode()).timestamp() if time else _stamp(self._info())[1] // 10**9)
        version = (file.size(), tags.get("ETag", b"%d" % seconds))
        is_other = self._version not in (None, version)
        if self.stamp is not None:
            listed = self.stamp[1] // 10**9  # an object's own time may be in seconds
            is_other = is_other or self.stamp[0] != version[0] or listed not in (0, seconds)
        if is_other:
            raise StoreError(f"{self} changed while it was read (its size, time or ETag is another); start again")
        self._version = version
        return file

    def upload(self, path: Path) -> None:
        """Put a file's bytes there; an object appears with all of them or not at all.

        Raises:
            StoreError: the store refuses.
        """
        if self.parts[0] == "file:":
            raise StoreError(f"{self} is read only; name the path instead")
        # In one call: closing a stream after half of them would complete the object.
        content = require_arrow(str(self)).memory_map(str(path)).read_buffer()

        def put(system: Any, key: str) -> None:
            with system.open_output_stream(key) as target:
                target.write(content)

        self._ask(put)

    def _info(self) -> Any:
        return self._ask(lambda system, key: system.get_file_info([key]))[0]

    def _ask(self, question: Callable[[Any, str], Answer]) -> Answer:
        """Answer a question; a store that refuses ends the verb, as a reader might pass over a damaged file."""
        root, rest = Address(*self.parts[:2]), self.parts[2:]
        try:
            system, start = _file_system(str(root))
            return question(system, "/".join([start, *rest]))
        except FileNotFoundError:
            raise FileNotFoundError(f"no such file: {self}") from None
        except CounterpointError:
            raise
        except Exception as error:  # file systems of other libraries, as of hf://, have errors of their own
            raise StoreError(f"{self}: {first_line(error)}") from None


class ObjectBytes(io.RawIOBase):
    """An object's bytes as a file of Python; a store that is away while they are read is no damaged file either."""

    def __init__(self, address: Address) -> None:
        self._address, self._file = address, address.open_input()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See ``io.IOBase.seek``."""
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer in one request.

        Raises:
            StoreError: the store refuses or is away.
        """
        try:
            return self._file.readinto(buffer)
        except Exception as error:  # as in ``Address``
            raise StoreError(f"{self._address}: {first_line(error)}") from None

    def close(self) -> None:
        """See ``io.IOBase.close``."""
        self._file.close()
        super().close()


def as_path(place: str | Path) -> Path:
    """The path of a file that a user names: an address if it has a scheme, else on disk, with ~ filled in.

    >>> as_path("s3://bucket/a.tar"), as_path("a.tar").name
    (Address('s3://bucket/a.tar'), 'a.tar')
    """
    if isinstance(place, str) and SCHEME.match(place):
        return Address(place)
    # Unlike Path.expanduser, leaves unknown users alone.
    return place if isinstance(place, Address) else Path(os.path.expanduser(place))


def absolute(path: str | Path) -> str:
    """A file's name from everywhere: an address as it is, a path on disk from its root."""
    path = as_path(path) if isinstance(path, str) else path
    return str(path) if isinstance(path, Address) else os.path.abspath(path)


def exists(path: Path) -> bool:
    """Tell whether anything is at a path; False for a name on disk that is too long, where ``Path.exists`` raises."""
    return path.exists() if isinstance(path, Address) else os.path.exists(path)


def check_parent(path: Path, *, flag: str = "--out") -> None:
    """Require that the folder in which something will be written exists; an object store has none.

    Raises:
        RunError: there is no such folder.
    """
    if not isinstance(path, Address) and not path.parent.is_dir():
        raise RunError(f"the folder {path.parent} does not exist; make it first or choose another {flag}")


def require_arrow(what: str) -> Any:
    """Import pyarrow.

    Raises:
        UsageError: it is not installed; the text says what needs it and how to get it.
    """
    try:
        import pyarrow  # deferred: the extra `search` may be absent
        import pyarrow.fs  # deferred: as above
        import pyarrow.ipc  # deferred: as above
        import pyarrow.parquet  # deferred: as above
    except ImportError:
        raise UsageError(f"{what} needs pyarrow; install it with: pip install pyarrow") from None
    return pyarrow


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes; or an object at an address.

    Raises:
        OSError: it is missing, cannot be read, or is something else; the text says what.
    """
    if isinstance(path, Address):
        return io.BufferedReader(ObjectBytes(path), SCAN_BYTES)
    try:
        return open(path, "rb", opener=_handle)
    except ValueError:
        raise OSError("no file can have this name") from None  # a NUL, or a surrogate that encodes no byte


def length(stream: IO[bytes]) -> int:
    """Number of bytes of a file, which is then at its beginning."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def read_regular(path: str | Path, at_most: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: as for ``open_regular``, or it has more bytes than ``at_most``, of which then none is read.
    """
    with open_regular(path) as stream:
        size = length(stream)
        check_size(size, at_most)
        # Bounded once more, as a file may grow meanwhile; what may be read is reserved at once.
        return stream.read(min(size + 1, at_most))


def read_text(path: str | Path, at_most: int = MAX_TEXT_BYTES) -> str:
    """Text of a regular file in UTF-8; the byte order mark that spreadsheets put before it is dropped.

    Raises:
        OSError: as for ``read_regular``.
        ValueError: it is not UTF-8, or holds a NUL, which no name of a file can.
    """
    content = read_regular(path, at_most)
    place = content.find(b"\0")
    if place >= 0:
        line = content.count(b"\n", 0, place) + 1
        raise ValueError(f"line {line} has a NUL character; save it as plain text in UTF-8")
    return content.decode("utf-8-sig")


def check_size(size: int, at_most: int) -> None:
    """Refuse more bytes than a reader takes, before any is read.

    Raises:
        OSError: too many.
    """
    if size > at_most:
        raise OSError(f"it has {size:,} bytes, at most {at_most:,} are read")


def is_shard_folder(path: str | Path) -> bool:
    """Tell whether a folder holds a table in shards (``evaluation.shard_files``)."""
    return (as_path(path) / SHARD_PLAN).is_file()


def is_file_or_shards(path: str | Path) -> bool:
    """Tell whether a path is a file or a folder of shards; a run is another folder."""
    return as_path(path).is_file() or is_shard_folder(path)


def shown_name(name: str) -> str:
    r"""A file's name as text that any file can hold: bytes that are not UTF-8 become escapes.

    >>> shown_name("caf\udce9.png")
    'caf\\udce9.png'
    """
    # Python keeps a byte that is not UTF-8 as a surrogate, which no codec writes.
    return name.encode(errors="backslashreplace").decode()


def _handle(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe, and keep regular files only."""
    handle = os.open(path, flags | NO_WAIT)
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind == stat.S_IFREG:
        return handle
    os.close(handle)
    raise OSError(f"it is {OTHER_KINDS.get(kind, 'something else')}, not a regular file; copy its content to one")


@cache
def _file_system(root: str) -> tuple[Any, str]:
    """The file system of a bucket, and the bucket's name in it."""
    arrow = require_arrow(root)
    try:
        return arrow.fs.FileSystem.from_uri(quote(root, safe=":/@"))
    except (ValueError, ImportError) as error:  # what it does not know, or a library that it needs
        raise UsageError(
            f"{root}: {first_line(error)}; s3://, gs://, file:/// and (with huggingface_hub) hf:// are read"
        ) from None


def _stamp(info: Any) -> Stamp:
    return (info.size, info.mtime_ns or 0)
