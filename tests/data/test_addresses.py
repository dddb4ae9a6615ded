"""Sources and tables in an object store: the samples and bytes of a disk, and one line where the store refuses."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.arrow_files import TextColumn
from counterpoint.core.errors import DataError, StoreError, UsageError
from counterpoint.core.user_files import Address, _file_system
from counterpoint.evaluation.embedding import Shards, embed_shards
from counterpoint.evaluation.vector_table import read_table
from data import shard_files
from data.opened_data import open_data

arrow = pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra `search`) is not installed")
pytest.importorskip("moto.server", reason="moto[server] (extra `dev`) is not installed")
boto3 = pytest.importorskip("boto3", reason="moto[server] (extra `dev`) is not installed")
BUCKET, ROWS = "photos", 40
opened = partial(open_data, image_size=16)
# The command, whose process is killed when it is about to send its second shard.
DIES_AT_A_SECOND_SHARD = """
import os, signal, sys
from counterpoint.cli.main import main
from counterpoint.core.user_files import Address
from counterpoint.core.arrow_files import TextColumn
upload, sent = Address.upload, []
def die(address, path):
    sent.append(address.suffix)
    if sent.count(".parquet") == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    upload(address, path)
Address.upload = die
main(sys.argv[1:])
"""
# The command, to which more than 5 samples are too many to hold; each rank notes what it reads.
NOTES_WHAT_IT_READS = """
import os, sys
from counterpoint.cli.main import main
from counterpoint.core import user_files
from counterpoint.data import sources, stores
from counterpoint.data.formats import arrow_and_csv, tar_shards
for module in (user_files, sources, arrow_and_csv):
    module.MOST_FILES = 5
tar_shards.MOST_BYTES = 100
sample = stores.FileStore._sample
def noted(store, position):
    with open(f"rank-{os.environ['RANK']}", "a") as file:
        print(position, file=file)
    return sample(store, position)
stores.FileStore._sample = noted
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A server of S3's protocol on this machine with an empty bucket; yields boto3's client."""
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
        client.create_bucket(Bucket=BUCKET)
        yield client
        server.stop()


def put(store: Any, folder: Path, key: str) -> str:
    """A folder's files, or a file, as objects; returns the address."""
    for path in [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]:
        name = key if folder.is_file() else f"{key}/{path.relative_to(folder).as_posix()}"
        store.put_object(Bucket=BUCKET, Key=name, Body=path.read_bytes())
    return f"s3://{BUCKET}/{key}"


def pictures(num: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    return [shard_files.picture(rng) for _ in range(num)]


def write_tables(folder: Path) -> None:
    """Shards of pictures with labels, in several row groups."""
    folder.mkdir()
    for number in range(3):
        rows = pictures(20)[number * 5 : number * 5 + 7]
        table = arrow.table({"image": rows, "label": [f"class {at % 2}" for at in range(len(rows))]})
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=3)


def write_tars(folder: Path) -> None:
    rng = np.random.default_rng(1)
    (folder / "deep").mkdir(parents=True)
    shard_files.write_shard(folder / "one.tar", shard_files.labelled(rng, list("abcdefg")))
    shard_files.write_shard(folder / "deep" / "two.tar", shard_files.labelled(rng, list("hijk")))


def write_pictures(folder: Path) -> None:
    for number, content in enumerate(pictures(12)):
        path = folder / f"class {number % 3}" / f"{number} ä%20.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("write", [write_tables, write_tars, write_pictures])
def test_samples_are_those_of_the_same_files_on_disk(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, is_kept: bool
) -> None:
    if not is_kept:
        monkeypatch.setattr("counterpoint.data.formats.indexed_images.MEMORY_BUDGET_BYTES", 0)
    write(tmp_path / "here")
    there = opened(put(store, tmp_path / "here", f"{write.__name__}/{is_kept}"))
    here = opened(tmp_path / "here")
    assert there.sample_names == here.sample_names
    assert there.classes() == here.classes()
    assert there.fingerprint == here.fingerprint
    order = torch.randperm(len(here), generator=torch.Generator().manual_seed(0)).tolist()
    assert torch.equal(there.store.fetch(order), here.store.fetch(order))


def test_an_object_that_was_replaced_is_not_read_on(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.data.formats.indexed_images.MEMORY_BUDGET_BYTES", 0)
    write_tars(tmp_path / "tars")
    write_tables(tmp_path / "tables")
    for name, inner in (("tars", "one.tar"), ("tables", "part-0.parquet")):
        source = opened(put(store, tmp_path / name, f"replaced/{name}"))
        other = (tmp_path / name / inner).read_bytes()[:-1] + b"!"  # of the same length
        store.put_object(Bucket=BUCKET, Key=f"replaced/{name}/{inner}", Body=other)
        with pytest.raises(StoreError, match=rf"s3://.*{inner} changed while it was read"):
            source.store.fetch(range(len(source)))


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 5 samples, or 100 bytes of shards, are too many to hold."""
    for module in ("core.user_files", "data.sources", "data.formats.arrow_and_csv"):
        monkeypatch.setattr(f"counterpoint.{module}.MOST_FILES", 5)
    monkeypatch.setattr("counterpoint.data.formats.tar_shards.MOST_BYTES", 100)
    monkeypatch.setattr("counterpoint.data.formats.listed_pictures.GROUP_ROWS", 4)
    monkeypatch.setattr("counterpoint.data.formats.indexed_images.MEMORY_BUDGET_BYTES", 0)


@pytest.mark.parametrize("is_disk", [True, False])
@pytest.mark.parametrize(
    ("write", "inner"),
    [
        (write_tables, ""),
        (write_tables, "part-1.parquet"),
        (write_tars, ""),
        (write_tars, "one.tar"),
        (write_pictures, ""),
    ],
)
@pytest.mark.usefixtures("few_are_many")
def test_what_is_listed_are_the_samples_that_an_index_has(
    store: Any, tmp_path: Path, write: Any, inner: str, is_disk: bool
) -> None:
    folder = tmp_path / "h\u00e4re %20"  # what a URI would have quoted
    write(folder)
    here, key = opened(folder / inner), f"listed/{write.__name__}/{inner or 'all'}"
    place = f"file://{folder / inner}" if is_disk else put(store, folder / inner, key)
    there = pickle.loads(pickle.dumps(opened(place)))
    assert isinstance(there.sample_names, TextColumn)
    assert tuple(there.sample_names) == here.sample_names
    assert there.classes() == here.classes()
    order = [6, 0, 4, 3]
    assert torch.equal(there.store.fetch(order), here.store.fetch(order))
    assert opened(place).fingerprint == there.fingerprint
    assert opened(place, altered="reindex").fingerprint == there.fingerprint


@pytest.mark.usefixtures("few_are_many")
def test_files_of_a_disk_that_change_after_they_were_listed_are_not_read(tmp_path: Path) -> None:
    write_pictures(tmp_path / "here")
    there = opened(f"file://{tmp_path / 'here'}")
    changed = tmp_path / "here" / there.sample_names[1]
    os.utime(changed, (1, 1))
    with pytest.raises(StoreError, match="changed while it was read"):
        there.store.fetch([1])
    changed.unlink()
    with pytest.raises(DataError, match="no such file"):
        there.store.fetch([1])


def test_an_address_of_a_disk_is_not_written(run: cp.Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["embed", str(run.path), "--out", f"file://{tmp_path}/new", "--shards", str(ROWS), "-q"]) == 2
    assert "is read only; name the path instead" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("few_are_many")
def test_pictures_that_are_too_many_to_hold_are_listed_once_and_read_as_needed(store: Any, tmp_path: Path) -> None:
    write_pictures(tmp_path / "here")
    here, there = opened(tmp_path / "here"), opened(place := put(store, tmp_path / "here", "many"))
    assert there.sample_names[2:7] == here.sample_names[2:7]
    gone, other = (f"many/{here.sample_names[at]}" for at in (0, 1))
    store.delete_object(Bucket=BUCKET, Key=gone)
    store.put_object(Bucket=BUCKET, Key=other, Body=b"another")
    again = opened(place)
    assert len(again) == len(here)  # as they were listed
    for at, error in ((0, DataError), (1, StoreError)):
        with pytest.raises(error, match="no such file" if at == 0 else "changed while it was read"):
            again.store.fetch([at])
    older = again.store.images[2].path  # pyright: ignore[reportAttributeAccessIssue]
    older.stamp = (older.stamp[0], older.stamp[1] - 10**10)  # it was put there again, with as many bytes
    with pytest.raises(StoreError, match="changed while it was read"):
        older.open_input()
    assert len(opened(place, altered="reindex", labels="none")) == len(here) - 1


@pytest.mark.parametrize("error", [OSError, RuntimeError])  # as Arrow's own file systems say it, and those of others
@pytest.mark.parametrize("write", [write_tables, write_pictures])
def test_a_store_that_is_away_makes_no_picture_a_bad_one(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, error: type[Exception]
) -> None:
    write(tmp_path / "here")
    key = f"away/{write.__name__}-{error.__name__}"
    place, opens, num_opened = put(store, tmp_path / "here", key), Address.open_input, 0

    class Away:
        """An object that was found, whose bytes do not come."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            if name in ("read", "readinto", "read_at"):
                raise error("AWS Error NETWORK_CONNECTION")
            return getattr(self.file, name)

    def opened_late(address: Address) -> Any:
        nonlocal num_opened
        num_opened += 1
        return Away(opens(address)) if num_opened > 4 else opens(address)

    monkeypatch.setattr(Address, "open_input", opened_late)
    with pytest.raises(StoreError, match="NETWORK_CONNECTION"):
        opened(place, max_bad=1.0)


@pytest.mark.parametrize(("write", "num_own"), [(write_tables, 10), (write_tars, 5), (write_pictures, 5)])
@pytest.mark.sampled(3)
def test_each_of_two_ranks_reads_its_own_share(store: Any, tmp_path: Path, write: Any, num_own: int) -> None:
    write(tmp_path / "here")
    place = put(store, tmp_path / "here", f"ranks/{write.__name__}")
    (tmp_path / "command.py").write_text(NOTES_WHAT_IT_READS, encoding="utf-8")
    words = f"train --data {place} --out run --epochs 1 --batch-size 10 --source.holdout 0 --source.image-size 16 -q"
    launch = "-m torch.distributed.run --standalone --nproc-per-node 2 command.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COUNTERPOINT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, *launch.split(), *words.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = [list(map(int, (tmp_path / f"rank-{rank}").read_text().split())) for rank in (0, 1)]
    # What both read is for the mean and deviation of the pixels.
    both = next(place for place, (one, other) in enumerate(zip(*read, strict=True)) if one != other)
    one, other = (each[both:] for each in read)
    assert len(one) == len(other) == num_own
    assert len({*one, *other}) == 2 * num_own


def deny(store: Any, action: str) -> None:
    policy = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    store.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [policy]}))


class HubIsAwayError(Exception):
    """No OSError, as those of the hub's client are none."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in the place of the hub, whose HfFileSystem is one of fsspec, too."""
    fsspec = pytest.importorskip("fsspec.registry", reason="fsspec (huggingface_hub, extra `hub`) is not installed")
    local = pytest.importorskip("fsspec.implementations.dirfs")

    folder = tmp_path / "hub"

    class Hub(local.DirFileSystem):
        protocol, cachable = "hf", False

        def __init__(self) -> None:
            super().__init__(str(folder), fsspec.filesystem("file"))

        def info(self, path: str, **options: Any) -> Any:
            if "away" in path:
                raise HubIsAwayError("[Errno 111] Connection refused")
            return super().info(path, **options)

    monkeypatch.setitem(fsspec._registry, "hf", Hub)
    _file_system.cache_clear()
    yield folder
    _file_system.cache_clear()


@pytest.mark.parametrize("write", [write_tables, write_tars, write_pictures])
def test_a_hub_is_read_as_a_disk(hub: Path, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    monkeypatch.setattr("counterpoint.data.formats.indexed_images.MEMORY_BUDGET_BYTES", 0)
    folder = hub / "datasets" / "user" / "name@main"
    folder.parent.mkdir(parents=True)
    write(folder)
    here, there = opened(folder), opened("hf://datasets/user/name@main")
    assert there.fingerprint == here.fingerprint
    assert torch.equal(there.store.fetch([4, 0]), here.store.fetch([4, 0]))


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (f"s3://{BUCKET}/no/such.tar", "no/such.tar"),
        ("s3://no-such-bucket/a.tar", "no-such-bucket"),
        ("nowhere://bucket/a.tar", "s3://, gs://, file:/// and"),
        ("hf://datasets/missing/one", "missing/one"),
        ("hf://datasets/away/one", "Connection refused"),
    ],
)
@pytest.mark.usefixtures("store", "hub")
def test_what_is_not_there_is_one_line(
    place: str, reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", "--data", place, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of Google's protocol in another process, since pyarrow keeps Python's lock while it asks; an address."""
    pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator (extra `dev`) is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = f"create_server('127.0.0.1', {port}, in_memory=True, default_bucket='photos').run()"
    code = f"from gcp_storage_emulator.server import create_server; {served}"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                time.sleep(0.1)
            monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
            _file_system.cache_clear()
            yield "gs://anonymous@photos"
        finally:
            server.kill()
            _file_system.cache_clear()


def test_google_s_store_is_read_as_a_disk(google: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.data.formats.indexed_images.MEMORY_BUDGET_BYTES", 0)
    for write in (write_tables, write_tars, write_pictures):
        place, folder = f"{google}/{write.__name__}", tmp_path / write.__name__
        write(folder)
        for path in (path for path in folder.rglob("*") if path.is_file()):
            (Address(place) / path.relative_to(folder).as_posix()).upload(path)
        here, there = opened(folder), opened(place)
        assert there.fingerprint == here.fingerprint
        assert torch.equal(there.store.fetch([4, 0]), here.store.fetch([4, 0]))
    (tmp_path / "other").write_bytes(b"another picture")
    Address(f"{google}/write_pictures/{there.sample_names[0]}").upload(tmp_path / "other")
    with pytest.raises(StoreError, match="changed while it was read"):
        there.store.fetch([0])
    with pytest.raises(UsageError, match="no-such-bucket"):
        opened("gs://anonymous@no-such-bucket/photos")


def objects(store: Any, prefix: str) -> dict[str, bytes]:
    found = store.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
    return {Path(each["Key"]).name: store.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("run")
    np.savez(folder / "pictures.npz", images=rng.integers(0, 256, (150, 8, 8), dtype=np.uint8))
    return cp.train(folder / "pictures.npz", epochs=1, batch_size=64, out=folder / "run", quiet=True)


@pytest.mark.thorough
def test_a_killed_embedding_goes_on_and_its_table_is_that_of_a_disk(store: Any, run: cp.Run, tmp_path: Path) -> None:
    assert embed_shards(run, shards=Shards(tmp_path / "here", ROWS), quiet=True)
    here = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    words = ["embed", str(run.path), "--out", f"s3://{BUCKET}/killed", "--shards", str(ROWS), "-q"]
    killed = subprocess.run([sys.executable, "-c", DIES_AT_A_SECOND_SHARD, *words], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert objects(store, "killed").keys() == {"plan.json", "shard-000000.parquet", "shard-000000.json"}
    versions = Address(f"s3://{BUCKET}/killed/shard-000000.parquet").stamped()
    assert main(words) == 0
    assert objects(store, "killed") == here
    assert Address(f"s3://{BUCKET}/killed/shard-000000.parquet").stamped() == versions  # not written again


def test_a_store_that_refuses_leaves_what_is_finished(
    store: Any, run: cp.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["embed", str(run.path), "--out", f"s3://{BUCKET}/denied", "--shards", str(ROWS), "-q"]
    assert main([*words, "--part", "1/2"]) == 0
    finished = objects(store, "denied")
    for action in ("s3:PutObject", "s3:GetObject"):
        deny(store, action)
        capsys.readouterr()
        try:
            assert main([*words, "--part", "2/2"]) == 2
        finally:
            store.delete_bucket_policy(Bucket=BUCKET)
        said = capsys.readouterr().err
        assert "ACCESS_DENIED" in said
        assert said.count("\n") == 1
        assert objects(store, "denied") == finished
    assert main([*words, "--part", "2/2"]) == 0
    assert len(read_table(Address(f"s3://{BUCKET}/denied"))) == 150
    assert main(["diagnose", f"s3://{BUCKET}/denied", "-q"]) == 0
