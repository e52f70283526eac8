"""Tables that share rows, whatever they or their columns are called.

Two columns may be the same if most of their distinct values are, or some of very many; each is matched once. Two tables are
twins if, over some three matched columns or the best 5 to 40, more than 5 % of the smaller table's distinct rows are found
in the other *and* are no coincidence: a row counts only where, were the columns independent, the other table would hold it
less than once in a hundred such tables. So tables of ages and sexes, which overlap by chance, are no twins. Long texts do
not repeat by chance and decide alone.
"""
import hashlib
import io
import zipfile
from itertools import combinations

import numpy as np
import pandas as pd

SHARE = 0.05
MOSTLY = 0.6
# Columns of many values say more: there a twin of few common rows has few common values, but more than chance gives.
LEAST_TELLING, TELLING = 25, 0.06
CHANCE = 0.01


def canon(s):
    if pd.api.types.is_bool_dtype(s):
        return s.astype(str)
    if pd.api.types.is_numeric_dtype(s):
        return s.map(lambda v: "" if pd.isna(v) else f"{float(v):.5g}")
    return s.map(lambda v: "" if pd.isna(v) else str(v).strip().lower())


class Prints:
    """A table as sets of values a column, for quick refusal, and its canonical columns."""

    def __init__(self, df, limit=20000):
        df = df.head(limit)
        self.rows, self.columns, self._shares = len(df), {}, {}
        for c in df.columns:
            v = canon(df[c]).reset_index(drop=True)
            distinct = set(v)
            if len(distinct) >= 2:
                self.columns[c] = (v, distinct)

    def shares(self, c):
        """Share of the rows that each value of a column has."""
        if c not in self._shares:
            self._shares[c] = self.columns[c][0].value_counts(normalize=True).to_dict()
        return self._shares[c]


def shared_columns(a, b):
    """Pairs of columns with mostly the same values, the most telling first; each column is used once."""
    pairs = []
    for x, (_, sx) in a.columns.items():
        for y, (_, sy) in b.columns.items():
            small = min(len(sx), len(sy))
            common = len(sx & sy)
            if small >= 2 and (common >= MOSTLY * small or common >= max(LEAST_TELLING, TELLING * small)):
                # Coded columns share their values; how often each occurs tells them apart, and a name breaks ties.
                px, py = a.shares(x), b.shares(y)
                alike = sum(min(px[v], py[v]) for v in sx & sy)
                pairs.append((-small * alike * common / max(len(sx), len(sy)), x != y, str(x), x, y))
    pairs.sort(key=lambda p: p[:3])
    out, left, right = [], set(), set()
    for *_, x, y in pairs:
        if x not in left and y not in right:
            out.append((x, y))
            left.add(x)
            right.add(y)
    return out


def coincidence(row, table, names, n):
    """How many times a table of `n` rows would hold a row if its columns were independent."""
    out = float(n)
    for value, c in zip(row, names):
        out *= table.shares(c).get(value, 1 / n)
    return out


def share(a, b):
    """Largest share of telling common rows over any three of the eight best matched columns, the best 5 to 40, or one long text."""
    best = 0.0
    matched = shared_columns(a, b)
    pairs = matched[:8]
    for x, y in pairs:
        sx, sy = a.columns[x][1], b.columns[y][1]
        long = [v for v in sx if len(v) > 24]
        if len(long) > 20:
            best = max(best, len(set(long) & sy) / min(len(sx), len(sy)))
    sets = list(combinations(pairs, 3)) + [tuple(matched[:k]) for k in (5, 8, 12, 20, 40) if len(matched) >= k]
    for chosen in sets:
        names = [[p[side] for p in chosen] for side in (0, 1)]
        rows = [set(zip(*(t.columns[c][0] for c in cols))) for t, cols in zip((a, b), names)]
        least = min(len(rows[0]), len(rows[1]))
        common = rows[0] & rows[1]
        if least < 20 or len(common) <= best * least:
            continue
        telling = sum(max(coincidence(r, a, names[0], a.rows), coincidence(r, b, names[1], b.rows)) < CHANCE for r in common)
        best = max(best, telling / least)
    return best


def twin_test(others):
    """A predicate over data frames: is it a twin of any of `others` (a list of Prints)?"""
    def is_twin(df):
        p = Prints(df)
        return any(share(p, o) > SHARE for o in others)
    return is_twin


def pictures(public, ids):
    """A digest of each row's pixels, or None where the task has no pictures."""
    def pixels(data):
        from PIL import Image
        return np.asarray(Image.open(io.BytesIO(data)))
    if (public / "images").is_dir():
        read = lambda i: pixels((public / "images" / f"{i}.png").read_bytes())
    elif (public / "images.zip").exists():
        z = zipfile.ZipFile(public / "images.zip")
        read = lambda i: pixels(z.read(f"{i}.png"))
    elif (public / "images.npz").exists():
        z = np.load(public / "images.npz")
        by_id = dict(zip(z["ids"].tolist(), z["images"]))
        read = lambda i: by_id[i]
    else:
        return None
    return [hashlib.sha256(read(i).tobytes()).hexdigest() for i in ids]


def table_of(folder):
    """What a prepared task consists of: the columns of train and test without ids, pictures as digests of their pixels.

    More than 150 columns are taken as one (a picture in pixels): no three of them would say more.
    """
    d = pd.concat([pd.read_csv(folder / "public" / "train.csv"), pd.read_csv(folder / "public" / "test.csv")], ignore_index=True)
    digests = pictures(folder / "public", d["id"].tolist())
    d = d.drop(columns=[c for c in ("id", "file") if c in d.columns])
    if digests is not None:
        return pd.DataFrame({"picture": digests})
    if len(d.columns) > 150:
        d = pd.DataFrame({"row": d.iloc[:, :-1].astype(str).agg(" ".join, axis=1)})
    return d
