"""From a table with targets to a task folder: split by hash, ids that tell nothing, leak checks, files, card.

Split: SHA-256 of (seed, task, purpose, key) mapped to [0,1). Ids are 10001.. in hash order. Test rows are feedback with
h < 0.3, else final; the two are separate files, so that one scope can be read without the other.
"""
import hashlib
import io
import json
import zipfile

import numpy as np
import pandas as pd

SEED = 2612
FEEDBACK_SHARE = 0.3


def h01(*parts):
    """A number in [0,1) that depends on the parts alone."""
    return int(hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()[:13], 16) / 16 ** 13


METRICS = {  # name: (higher is better, submission kind, formula for the description)
    "rmse": (False, "value", "root mean squared error"),
    "rmsle": (False, "value", "root mean squared error between ln(1+prediction) and ln(1+truth); negative predictions are rejected"),
    "mae": (False, "value", "mean absolute error"),
    "r2": (True, "value", "coefficient of determination, 1 - SSE/SST"),
    "mape": (False, "value", "mean absolute percentage error, in percent"),
    "smape": (False, "value", "symmetric mean absolute percentage error, in percent (a 0/0 term counts 0)"),
    "poisson_deviance": (False, "value", "mean Poisson deviance; predictions are floored at 1e-9"),
    "spearman": (True, "value", "Spearman rank correlation (average ranks for ties; 0 for constant predictions)"),
    "auc": (True, "prob", "area under the ROC curve"),
    "log_loss": (False, "prob", "binary logarithmic loss; probabilities are clipped to [1e-15, 1-1e-15]"),
    "brier": (False, "prob", "Brier score, the mean squared error of the probability"),
    "average_precision": (True, "prob", "average precision (step-wise area under the precision-recall curve)"),
    "capture_at_20": (True, "prob", "share of all positives found among the 20% of rows with the highest score"),
    "accuracy": (True, "label", "share of exactly right labels"),
    "balanced_accuracy": (True, "label", "mean of the per-class recalls"),
    "macro_f1": (True, "label", "unweighted mean of the per-class F1 scores"),
    "f1": (True, "label", "F1 score of class 1"),
    "mcc": (True, "label", "Matthews correlation coefficient"),
    "qwk": (True, "label", "quadratic weighted kappa on the integer grades"),
    "cindex": (True, "value", "concordance index (higher prediction = earlier event; tied predictions count one half)"),
    "mc_log_loss": (False, "proba", "multi-class logarithmic loss; each row is clipped at 1e-15 and renormalised to sum 1"),
    "map_at_3": (True, "topk", "mean average precision at 3: 1, 1/2, 1/3 for a right label in place 1, 2, 3"),
    "top3_accuracy": (True, "topk", "share of rows whose true label is among the first three guesses"),
    "mcrmse": (False, "multi", "mean over the target columns of the root mean squared error"),
}


class Spec:
    """A task before its split: features and target(s) in `df`. Columns that start with _ are keys, never written."""

    def __init__(self, df, target, group=None, order=None, extra=(), images=None, image_format=None, text=(), pixels=None,
                 train_max=2200, test_max=1400, test_frac=0.4, notes=(), keep_dups=False):
        self.df, self.group, self.order, self.extra = df, group, order, tuple(extra)
        self.images, self.image_format, self.text, self.pixels = images, image_format, tuple(text), pixels
        self.train_max, self.test_max, self.test_frac, self.notes, self.keep_dups = train_max, test_max, test_frac, tuple(notes), keep_dups
        self.targets = [target] if isinstance(target, str) else list(target)


def split(task_id, sp):
    """Rows of train and test by index, their ids, the scope of each test row, the feature columns, duplicates dropped."""
    d = sp.df.reset_index(drop=True)
    hidden = [c for c in d.columns if str(c).startswith("_")]
    feats = [c for c in d.columns if c not in sp.targets and c not in sp.extra and c not in hidden]
    keep, dups = d[sp.targets].notna().all(axis=1), 0
    if feats and not sp.images and not sp.keep_dups:
        repeated = d.duplicated(subset=feats) & keep
        dups, keep = int(repeated.sum()), keep & ~repeated
    d = d[keep]
    if sp.order:
        key = d[sp.order].astype(str) if d[sp.order].dtype == object else d[sp.order]
        is_test = key >= key.sort_values().iloc[int(len(d) * (1 - sp.test_frac))]
    elif sp.group == "_side":
        is_test = d["_side"] == "test"
    else:
        g = d[sp.group] if sp.group else pd.Series(d.index, index=d.index)
        is_test = g.map(lambda k: h01(SEED, task_id, "side", k) < sp.test_frac)
    chance = pd.Series([h01(SEED, task_id, "sample", i) for i in d.index], index=d.index)
    tr, te = chance[~is_test].nsmallest(sp.train_max).index, chance[is_test].nsmallest(sp.test_max).index
    order = pd.Series({i: h01(SEED, task_id, "id", i) for i in list(tr) + list(te)}).sort_values().index
    ids = pd.Series(range(10001, 10001 + len(order)), index=order)
    in_train, in_test = set(tr), set(te)
    tr, te = [i for i in order if i in in_train], [i for i in order if i in in_test]
    feedback = {i: h01(SEED, task_id, "usage", int(ids[i])) < FEEDBACK_SHARE for i in te}
    return d, feats, ids, tr, te, feedback, dups


def spearman(a, b):
    a, b = pd.Series(a).rank(), pd.Series(b).rank()
    return 0.0 if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


def leak_checks(d, sp, feats, tr, te, ids, kind):
    """Rows on both sides, id against target, the strongest single feature (fitted on one half of train, scored on the other)."""
    out = {}
    if feats:
        def keys(ix):
            return set(d.loc[ix, feats].astype(str).agg("|".join, axis=1)) if not sp.images else set()
        out["featureRowsInBothSides"] = len(keys(tr) & keys(te))
    y = d.loc[tr, sp.targets[0]]
    yn = pd.factorize(y)[0].astype(float) if y.dtype == object else y.astype(float).values
    out["idTargetSpearman"] = round(spearman(yn, ids.loc[tr].values.astype(float)), 3)
    worst = ("", 0.0)
    for c in feats:
        if c in sp.text:
            continue
        col = d.loc[tr, c]
        x = pd.factorize(col)[0].astype(float) if col.dtype == object else col.astype(float).fillna(-999).values
        if len(np.unique(x)) < 2:
            continue
        b = pd.Series(x).rank(pct=True).mul(20).round().astype(int).values if len(np.unique(x)) > 40 else pd.factorize(x)[0]
        half = np.arange(len(x)) % 2 == 0
        if y.dtype == object or kind in ("label", "topk", "proba"):
            yy = pd.factorize(y)[0]
            mode = pd.Series(yy[half]).groupby(b[half]).agg(lambda s: s.mode().iloc[0])
            right = np.mean(pd.Series(b[~half]).map(mode).fillna(-1).values == yy[~half])
            base = np.mean(yy[~half] == pd.Series(yy[half]).mode().iloc[0])
            s = (right - base) / max(1e-9, 1 - base)
        else:
            p = pd.Series(b[~half]).map(pd.Series(yn[half]).groupby(b[half]).mean()).fillna(yn[half].mean()).values
            t = yn[~half]
            s = float(1 - np.sum((t - p) ** 2) / np.sum((t - t.mean()) ** 2))
        if s > worst[1]:
            worst = (c, float(s))
    out["strongestSingleFeature"] = {"column": worst[0], "explained": round(worst[1], 3)}
    out["proxySuspected"] = worst[1] > 0.95
    return out


def png(a):
    from PIL import Image
    b = io.BytesIO()
    Image.fromarray(a).save(b, "PNG", optimize=True)
    return b.getvalue()


def write_csv(df, path):
    df.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def write_images(sp, pub, ids, rows):
    if sp.image_format == "png":
        (pub / "images").mkdir()
        for i in rows:
            (pub / "images" / f"{ids[i]}.png").write_bytes(png(sp.images[i]))
    elif sp.image_format == "zip":
        with zipfile.ZipFile(pub / "images.zip", "w", zipfile.ZIP_STORED) as z:
            for i in rows:
                z.writestr(zipfile.ZipInfo(f"{ids[i]}.png"), png(sp.images[i]))
    else:
        np.savez_compressed(pub / "images.npz", ids=ids.loc[rows].values, images=np.stack([sp.images[i] for i in rows]))


def sample_submission(metric, kind, targets, test_ids, y, classes):
    sub = pd.DataFrame({"id": test_ids})
    if kind == "proba":
        for c in classes:
            sub[str(c)] = round(1 / len(classes), 6)
    elif kind == "topk":
        sub[targets[0]] = " ".join(map(str, classes[:3]))
    elif kind == "label":
        sub[targets[0]] = classes[0]
    elif kind == "prob":
        sub[targets[0]] = 0.5
    elif kind == "multi":
        for c in targets:
            sub[c] = 0.0
    elif metric == "cindex":
        sub["risk"] = 0.0
    else:
        sub[targets[0]] = float(round(y.mean(), 2)) if abs(y.mean()) < 1e6 else 0
    return sub


def column_cards(sp, train, test):
    out = []
    for c in test.columns:
        if c == "id":
            continue
        text = test[c].dtype == object or train[c].dtype == object
        if sp.image_format == "png" and c == "file":
            kind = "file"
        elif c in sp.text:
            kind = "text"
        elif c == "series":
            kind = "series"
        elif text and train[c].dropna().astype(str).str.match(r"^\d{4}-\d\d-\d\d").all():
            kind = "date"
        else:
            kind = "category" if text else "number"
        card = {"name": c, "type": kind, "missing": bool(train[c].isna().any() or test[c].isna().any())}
        if kind == "category":
            card["levels"] = int(train[c].nunique())
        out.append(card)
    return out


def target_card(metric, kind, y):
    label = kind in ("label", "topk", "proba")
    numeric = y.dtype != object
    whole = numeric and bool((y == y.round()).all())
    card = {"type": "label" if label and metric != "qwk" else "integer" if whole else "number",
            "positive": bool(numeric and (y > 0).all()), "skewed": bool(numeric and not label and kind != "prob" and float(y.skew()) > 1.0)}
    if label or kind == "prob":
        card["rarest"] = round(float(y.value_counts(normalize=True).min()), 4)
    return card


def write_task(root, task, sp):
    """Writes public/, private/{feedback,final}.csv and task.json under `root`, which must be empty; returns the card."""
    metric, tid = task["metric"], task["id"]
    higher, kind, formula = METRICS[metric]
    d, feats, ids, tr, te, feedback, dups = split(tid, sp)
    pub, prv = root / "public", root / "private"
    pub.mkdir(parents=True)
    prv.mkdir()
    T = sp.targets
    classes = sorted(d.loc[tr + te, T[0]].unique().tolist()) if kind in ("label", "topk", "proba") else None

    def frame(ix, cols):
        f = d.loc[ix, cols].copy()
        f.insert(0, "id", ids.loc[ix].values)
        return f
    train, test = frame(tr, feats + T + list(sp.extra)), frame(te, feats)
    if sp.images:
        write_images(sp, pub, ids, tr + te)
        if sp.image_format == "png":
            for f in (train, test):
                f.insert(1, "file", "images/" + f.id.astype(str) + ".png")
    write_csv(train, pub / "train.csv")
    write_csv(test, pub / "test.csv")
    sub = sample_submission(metric, kind, T, test.id, d.loc[tr, T[0]], classes)
    write_csv(sub, pub / "sample_submission.csv")
    answers = frame(te, T + list(sp.extra))
    shown = np.array([feedback[i] for i in te], bool)
    write_csv(answers[shown], prv / "feedback.csv")
    write_csv(answers[~shown], prv / "final.csv")
    (pub / "description.md").write_text(describe(task, sp, train, test, sub, formula, higher, kind, classes, feats))
    back = pd.read_csv(pub / "train.csv"), pd.read_csv(pub / "test.csv")   # the card speaks of what a program reads
    card = {"schema": "wmrl-task/2", "id": tid, "suite": task["suite"], "title": task["title"], "modality": task["modality"],
            "split": task["split"], "trainable": task.get("trainable", True), "metric": {"name": metric, "higherIsBetter": higher},
            "submission": {"kind": kind, "idColumn": "id", "columns": [str(c) for c in sub.columns[1:]],
                           **({"classes": [str(c) for c in classes]} if classes else {})},
            "targets": T, "columns": column_cards(sp, *back), **({"images": sp.image_format} if sp.images else {}),
            **({"pixels": sp.pixels} if sp.pixels else {}), "extraTrainColumns": list(sp.extra),
            "rows": {"train": len(tr), "test": len(te), "feedback": int(shown.sum()), "final": int((~shown).sum())},
            "target": target_card(metric, kind, back[0][T[0]]), "story": task["story"], "metricFormula": formula,
            "splitRule": "time" if sp.order else "group" if sp.group else "row",
            "notes": list(sp.notes) + ([f"{dups} rows with repeated features dropped"] if dups else []),
            "source": task["source"], "licence": task["licence"], "leakChecks": leak_checks(d, sp, feats, tr, te, ids, kind)}
    (root / "task.json").write_text(json.dumps(card, indent=1))
    return card


def describe(task, sp, train, test, sub, formula, higher, kind, classes, feats):
    T = sp.targets
    L = [f"# {task['title']}", "", "## Overview", "", task["story"], "", "## Evaluation", "",
         f"Submissions are scored by **{formula}** (`{task['metric']}`). {'Higher' if higher else 'Lower'} is better. "
         "30% of the test rows make the public leaderboard, the other 70% the private one.", "", "### Submission file", "",
         f"Write `submission.csv` with a header and exactly one line for each of the {len(test)} ids of `test.csv`, in any order:", "", "```"]
    L += sub.head(3).to_csv(index=False).strip().splitlines() + ["...", "```", ""]
    if kind == "label":
        L.append(f"The value is one of: {', '.join(map(str, classes))}.")
    if kind == "topk":
        L.append(f"The value holds up to three different labels, best first, separated by spaces. Labels: {', '.join(map(str, classes))}.")
    if kind == "prob":
        L.append(f"`{T[0]}` is the probability (or a score) of class 1" + (", between 0 and 1." if task["metric"] in ("log_loss", "brier") else "; only the order matters."))
    if kind == "proba":
        L.append(f"One column for each of the {len(classes)} classes; values are non-negative.")
    L += ["", "## Data", "", f"- `train.csv`: {len(train)} rows, {len(train.columns)} columns, with the target" + ("s" if len(T) > 1 else "") + f" {', '.join('`%s`' % c for c in T)}"
          + (" and the indicator `event` (1 = died, 0 = still alive at the end of follow-up)" if sp.extra else ""),
          f"- `test.csv`: {len(test)} rows, the same columns without the target", "- `sample_submission.csv`: the format, with a constant guess"]
    if sp.images:
        L.append({"png": "- `images/`: one PNG per row, named in column `file`", "zip": "- `images.zip`: one PNG per row, named `<id>.png`",
                  "npz": "- `images.npz`: array `images` (uint8) and array `ids` in the same order"}[sp.image_format])
    rule = "Test rows lie later in time than all training rows." if sp.order else "Related rows (same group) are kept on one side of the split." if sp.group else "Rows were assigned to train and test at random."
    L += ["", rule, ""]
    if 0 < len(feats) <= 40:
        L += ["| column | type | example |", "|---|---|---|"]
        for c in feats:
            ex = str(train[c].dropna().iloc[0]) if train[c].notna().any() else ""
            L.append(f"| {c} | {'number' if train[c].dtype != object else 'text'} | {ex[:40].replace('|', '/')} |")
    L += ["", f"Source: {task['source']['item']}; licence: {task['licence']}.", ""]
    return "\n".join(L)
