"""Eight text tasks. Letters, years and headers that would name the target are masked or cut off."""
import json
import re

import pandas as pd

from frame import Spec, h01
from recipe import is_value, recipe


@recipe("food-review-stars")
def reviews(src):
    d = pd.concat([src.table("modeldata", "training_data"), src.table("modeldata", "testing_data")], ignore_index=True)
    d = d.drop_duplicates("review").drop_duplicates("product")
    d["great"] = is_value(d.pop("score"), "great")
    d["review"] = d.review.astype(str).str.replace(r"\s+", " ", regex=True).str.slice(0, 700)
    return Spec(d.drop(columns="product"), "great", text=["review"], train_max=1800, test_max=1200,
                notes=["product code dropped, repeated reviews dropped"])


def mail(raw):
    """Subject and the beginning of the body, without headers, list tags and mark-up."""
    head, _, body = raw.partition("\n\n")
    subject = re.search(r"^Subject:\s*(.*)$", head, re.M)
    subject = re.sub(r"\[[^\]]{1,24}\]", " ", subject.group(1) if subject else "")
    body = re.sub(r"<[^>]{0,300}>", " ", body)
    body = re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e]", " ", body))[:600]
    return subject[:120].strip(), body.strip()


@recipe("spam-mail")
def spam(src):
    rows, archive = [], src.tar("spam")
    for m in archive.getmembers():
        p = m.name.split("/")
        if len(p) == 4 and p[1] == "data" and p[3].endswith(".json") and h01("spam", p[3]) < 0.62:
            text = json.loads(archive.extractfile(m).read()).get("text", "")
            rows.append((*mail(text), int("spam" in p[2])))
    d = pd.DataFrame(rows, columns=["subject", "body", "spam"]).drop_duplicates("body")
    return Spec(d[d.body.str.len() > 20], "spam", text=["subject", "body"], train_max=1600, test_max=1200,
                notes=["all mail headers except the subject removed, list tags in brackets removed, HTML stripped",
                       "ham is partly mailing-list mail"])


WORDS = 70  # of a passage


@recipe("address-year")
def addresses(src):
    rows, archive = [], src.tar("sotu")
    for m in archive.getmembers():
        if not re.search(r"/data/\d{4}_.*\.json$", m.name):
            continue
        j = json.loads(archive.extractfile(m).read())
        words = re.sub(r"\b(1[6-9]|20)\d\d\b", "0000", re.sub(r"\s+", " ", j["text"])).split(" ")
        address = f"{j['year']}-{j['name']}"
        for i in range(0, len(words) - WORDS, WORDS):
            if h01("sotu", address, i) < min(1.0, 16 * WORDS / len(words)):  # about 16 passages an address
                rows.append((" ".join(words[i:i + WORDS]), int(j["year"]), address))
    return Spec(pd.DataFrame(rows, columns=["passage", "year", "_address"]), "year", group="_address", text=["passage"],
                train_max=1900, test_max=1300, notes=["years written in the text masked as 0000", "split by address"])


# WordNet's lexicographer files of nouns that are fields of meaning.
FIELDS = {4: "act", 5: "animal", 6: "artifact", 7: "attribute", 8: "body", 9: "cognition", 10: "communication", 11: "event",
          12: "feeling", 13: "food", 14: "group", 15: "location", 17: "object", 18: "person", 19: "phenomenon", 20: "plant",
          21: "possession", 22: "process", 23: "quantity", 24: "relation", 26: "state", 27: "substance", 28: "time"}


@recipe("gloss-category")
def glosses(src):
    rows = []
    for line in src.tar_read("wordnet", "package/dict/data.noun").decode("latin-1").splitlines():
        if line.startswith(" ") or "|" not in line:
            continue
        field, gloss = int(line.split(" ", 2)[1]), line.split("|", 1)[1].split('; "')[0].strip()
        if field in FIELDS and len(gloss) > 25:
            rows.append((gloss[:240], FIELDS[field]))
    d = pd.DataFrame(rows, columns=["gloss", "field"]).drop_duplicates("gloss")
    d["_key"] = [h01("wn", g) for g in d.gloss]
    d = d.sort_values("_key").groupby("field").head(170).drop(columns="_key")
    return Spec(d, "field", text=["gloss"], test_max=1500,
                notes=["the defined words are not given; usage examples cut off", "23 fields, at most 170 glosses each"])


LANGUAGES = set("spa por glg cat ast ita cos fra ron dan nob nno swe isl fao nld afr deu ltz fry ces slk pol slv hrv bos fin est".split())
LETTERS = 24  # of a snippet


@recipe("language-of-snippet")
def languages(src):
    rows, seen, archive = [], set(), src.tar("udhr")
    for m in archive.getmembers():
        if "/declaration/" not in m.name:
            continue
        page = archive.extractfile(m).read().decode("utf8", "replace")
        iso = re.search(r'data-iso6393="(\w+)"', page)
        if not iso or iso.group(1) not in LANGUAGES or iso.group(1) in seen:
            continue
        language = iso.group(1)
        seen.add(language)
        body = re.sub(r"[^\w ]+", " ", re.sub(r"<[^>]+>", " ", page.split("<body>")[1]).lower())
        body = re.sub(r"\s+", " ", re.sub(r"\d+", " ", body)).strip()
        cuts = [body[i:i + LETTERS] for i in range(200, len(body) - LETTERS, LETTERS)]
        cuts.sort(key=lambda c: h01("udhr", language, c))
        rows += [(c.strip(), language) for c in cuts[:130]]
    d = pd.DataFrame(rows, columns=["snippet", "language"]).drop_duplicates("snippet", keep=False)
    return Spec(d, "language", text=["snippet"], train_max=2100, test_max=1500,
                notes=["snippets do not overlap; snippets shared by two languages dropped"])


@recipe("artwork-year")
def artworks(src):
    d = src.table("modeldata", "tate_text").drop(columns=["id"])
    for c in ("title", "medium", "artist"):
        d[c] = d[c].astype(str).str.replace(r"\d{2,4}", "#", regex=True)
    return Spec(d.drop_duplicates(["artist", "title", "medium"]), "year", text=["artist", "title", "medium"], train_max=2100,
                test_max=1300, notes=["accession id dropped, numbers in titles masked", "artist has high cardinality"])


@recipe("word-stress")
def stress(src):
    rows = []
    for word, sounds in src.json("cmudict", "package/data/dict.json").items():
        vowels = [s[-1] for s in sounds.split() if s[-1] in "012"]
        if word.isalpha() and len(vowels) >= 3 and vowels.count("1") == 1 and len(word) >= 6:
            rows.append((word.lower(), str(min(vowels.index("1") + 1, 5))))
    d = pd.DataFrame(rows, columns=["word", "stress"])
    d["_key"] = [h01("cmu", w) for w in d.word]
    d = d.sort_values("_key").groupby("stress").head(1500).drop(columns="_key")
    d["_stem"] = d.word.str.slice(0, 6)
    return Spec(d, "stress", group="_stem", text=["word"],
                notes=["split by the first six letters, so inflections of a word stay on one side"])


@recipe("strike-report-phase")
def reports(src):
    d = src.table("openintro", "birds")[["remarks", "phase_of_flt"]].dropna().drop_duplicates("remarks", keep=False)
    d = d[d.remarks.str.len() > 30].rename(columns={"phase_of_flt": "phase"})
    d["phase"] = d.phase.astype(str).str.lower().str.replace(" ", "_")
    often = d.phase.value_counts()
    d = d[d.phase.isin(often[often >= 60].index)]
    return Spec(d, "phase", text=["remarks"], test_max=1500, notes=["repeated remarks dropped"])
