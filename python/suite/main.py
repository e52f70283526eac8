"""Builds tasks to folders of their own; one JSON line a task on stdout. Called by src/tasks/prepare.ts.

  main.py build --suite builtin|small --artefacts DIR --out DIR [--ids a,b] [--prepared DIR]
  main.py twins --data DIR --suites builtin,small

`build` writes each task under a temporary name and renames it to OUT/<id> last, so a folder under that name is whole.
Lines: {"id", "status": "begin"}, then {"id", "status": "built", "versions"} or {"id", "status": "failed", "detail"}; one
broken task never stops the others. `twins` prints pairs of prepared tasks that share data, and between them how far it is:
{"read", "of"} tasks, then {"compared", "of"} pairs.
"""
import argparse
import json
import os
import shutil
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFIX = "suite: "


def say(**line):
    print(json.dumps(line), flush=True)


def versions():
    """Versions that a task's bytes may depend on. @raises SystemExit where they cannot build the suite."""
    try:
        import numpy
        import pandas
        import PIL
        import sklearn
    except ImportError as e:
        sys.exit(f"{PREFIX}{e.name} is not installed in {sys.executable}")
    if int(pandas.__version__.split(".")[0]) != 2:
        sys.exit(f"{PREFIX}pandas 2.x is needed to build tasks, {sys.executable} has {pandas.__version__}")
    return {"numpy": numpy.__version__, "pandas": pandas.__version__, "pillow": PIL.__version__, "scikit-learn": sklearn.__version__}


def load(name):
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def source_card(key, item):
    """Where a task's data come from, as its card says it."""
    pin = load("artefacts.json").get(key)
    if pin is None:
        return {"registry": "pypi", "package": "scikit-learn", "item": item, "sha256": None}
    return {"registry": pin["registry"], "package": pin["spec"], "item": item, "sha256": pin["sha256"]}


def make(out, task, spec):
    """Writes a task under a temporary name, then renames it."""
    from frame import write_task
    final, part = out / task["id"], out / f".{task['id']}.{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        write_task(part, task, spec)
        os.chmod(part / "private", 0o700)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def attempt(out, task, spec_of, libraries):
    say(id=task["id"], status="begin")
    try:
        make(out, {**task, "source": source_card(task["source"], task["item"])}, spec_of())
        say(id=task["id"], status="built", versions=libraries)
    except Exception as e:  # whatever is wrong with one task, the others are still to be built
        if os.environ.get("WMRL_DEBUG"):
            raise
        say(id=task["id"], status="failed", detail=f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")


def build(a):
    libraries = versions()
    from sources import Sources
    src = Sources(a.artefacts, {k: v["file"] for k, v in load("artefacts.json").items()})
    out = Path(a.out)
    os.umask(0o022)  # programs of other users read the public files
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(a.ids.split(",")) if a.ids else None
    if a.suite == "builtin":
        import image, tabular, text  # noqa: E401,F401  they register their recipes
        from recipe import RECIPES
        for t in load("builtin.json"):
            if wanted is None or t["id"] in wanted:
                attempt(out, {**t, "suite": "builtin"}, lambda: RECIPES[t["id"]](src), libraries)
        return
    import small
    for t, spec in small.asked(src, lambda: twin_of_builtin(Path(a.prepared)), wanted):
        attempt(out, t, lambda: spec, libraries)


def twin_of_builtin(folder):
    """The twins test against every prepared task of the built-in suite that has columns of its own."""
    import twins
    others = []
    for t in load("builtin.json"):
        if t["modality"] == "image":
            continue
        if not (folder / t["id"] / "task.json").exists():
            raise FileNotFoundError(f"small tables are checked against the built-in suite, and {t['id']} is not prepared")
        others.append(twins.Prints(twins.table_of(folder / t["id"])))
    return twins.twin_test(others)


def overlap(a):
    versions()
    import twins
    data, prints = Path(a.data), []
    cards = [(s, card) for s in a.suites.split(",") for card in sorted((data / s).glob("*/task.json"))]
    for k, (suite, card) in enumerate(cards):
        c = json.loads(card.read_text(encoding="utf-8"))
        table = twins.table_of(card.parent)
        prints.append((suite, c["id"], c["split"], twins.Prints(table) if len(table.columns) else None))
        say(read=k + 1, of=len(cards))
    # The corpus may hold several tasks of one table; what matters is what is measured on.
    pairs = [(x, y) for i, x in enumerate(prints) for y in prints[:i] if not x[0] == y[0] == "small"]
    for k, ((sa, ia, pa, a_), (sb, ib, pb, b_)) in enumerate(pairs):
        s = twins.share(a_, b_) if a_ and b_ else 0
        if s > twins.SHARE:
            say(a=f"{sb}/{ib}", b=f"{sa}/{ia}", kind="data", share=round(s, 4), sides=[pb, pa])
        if (k + 1) % 50 == 0 or k + 1 == len(pairs):
            say(compared=k + 1, of=len(pairs))


def main():
    warnings.filterwarnings("ignore")
    ap = argparse.ArgumentParser()
    sub = ap.add_subparsers(dest="command", required=True)
    b = sub.add_parser("build")
    b.add_argument("--suite", choices=["builtin", "small"], required=True)
    b.add_argument("--artefacts", required=True)
    b.add_argument("--out", required=True)
    b.add_argument("--ids", default="")
    b.add_argument("--prepared", default="")
    t = sub.add_parser("twins")
    t.add_argument("--data", required=True)
    t.add_argument("--suites", default="builtin,small")
    a = ap.parse_args()
    build(a) if a.command == "build" else overlap(a)


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    main()
