"""Five picture tasks and one of electric currents; the formats differ on purpose (folder, zip, npz, pixel columns, text)."""
import io
import re

import numpy as np
import pandas as pd

from frame import Spec, h01
from recipe import recipe

GARMENTS = ["tshirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
TURNABLE = (0, 3, 5, 7, 8, 9)  # garments whose right way up can be seen


def chosen(n, tag, total):
    """`n` of `total` indices, in an order that depends on the tag alone."""
    return sorted(range(total), key=lambda i: h01(tag, i))[:n]


@recipe("garment-kind")
def garment_kind(src):
    X, y = src.fashion()
    ix = chosen(2100, "garment-kind", 30000)
    return Spec(pd.DataFrame({"kind": [GARMENTS[y[i]] for i in ix]}), "kind", images=[X[i] for i in ix], image_format="png",
                train_max=1250, test_max=800)


@recipe("garment-rotation")
def garment_rotation(src):
    from PIL import Image
    X, y = src.fashion()
    images, angles = [], []
    for i in [i for i in chosen(9000, "garment-rotation", 30000) if y[i] in TURNABLE][:2000]:
        angle = round(-90 + 180 * h01("angle", i), 2)
        images.append(np.asarray(Image.fromarray(X[i]).rotate(angle, Image.BILINEAR)))
        angles.append(angle)
    return Spec(pd.DataFrame({"angle": angles}), "angle", images=images, image_format="zip", train_max=1200, test_max=800,
                notes=["images arrive as one zip"])


@recipe("digit-sum")
def digit_sum(src):
    from sklearn.datasets import load_digits
    scans, digit = load_digits(return_X_y=True)
    scans = scans.reshape(-1, 8, 8)
    order, train = chosen(len(digit), "digit-sum", len(digit)), 1250
    rows, total, side = [], [], []
    for k in range(2000):
        pool = order[:1080] if k < train else order[1080:]
        three = [pool[int(h01("ds", k, j) * len(pool))] for j in range(3)]
        noise = np.array([h01("dn", k, q) for q in range(24)])
        speckle = 5 * np.resize(noise, (8, 24)) * (np.resize(noise[::-1], (8, 24)) > 0.6)
        rows.append(np.clip(np.concatenate([scans[i] for i in three], 1) + speckle, 0, 16).round().astype(int).ravel())
        total.append(int(sum(digit[i] for i in three)))
        side.append("train" if k < train else "test")
    d = pd.DataFrame(rows, columns=[f"p{r}_{c:02d}" for r in range(8) for c in range(24)])
    return Spec(d.assign(total=total, _side=side), "total", group="_side", test_frac=None,
                pixels={"height": 8, "width": 24, "white": 16}, notes=["train and test sums are made from disjoint scans"])


GROUPS = {"Smileys & Emotion": "smileys", "People & Body": "people", "Animals & Nature": "animals", "Food & Drink": "food",
          "Travel & Places": "travel", "Activities": "activities", "Objects": "objects", "Symbols": "symbols", "Flags": "flags"}


@recipe("emoji-group")
def emoji_group(src):
    from PIL import Image
    listed = [e for e in src.json("emoji", "package/emoji.json") if e["category"] in GROUPS and e.get("has_img_google")]
    listed = {e["image"]: e for e in sorted(listed, key=lambda e: e["image"])}
    drawn, archive = {}, src.tar("emoji")
    for m in archive.getmembers():
        name = m.name.split("/")[-1]
        if m.name.startswith("package/img/google/64/") and name in listed:
            drawn[name] = archive.extractfile(m).read()
    rows, images = [], []
    for name, e in listed.items():
        if name not in drawn:
            continue
        picture = Image.open(io.BytesIO(drawn[name])).convert("RGBA").resize((32, 32), Image.LANCZOS)
        white = Image.new("RGBA", (32, 32), (255, 255, 255, 255))
        images.append(np.asarray(Image.alpha_composite(white, picture).convert("RGB")))
        rows.append((GROUPS[e["category"]], name if e["category"] == "Flags" else name.split("-")[0]))
    return Spec(pd.DataFrame(rows, columns=["group", "_base"]), "group", group="_base", images=images, image_format="png",
                train_max=1200, test_max=750, notes=["split by base code point, so gender and profession variants stay on one side",
                                                     "skin-tone variants not used"])


GLYPHS = "abcdefghknprstuwxyzABCDEGHKMNPRSTW2345689&"


@recipe("font-style")
def font_style(src):
    from PIL import Image, ImageDraw, ImageFont
    cuts = [n.split("/")[-1][:-4] for n in src.tar("dejavu").getnames() if n.endswith(".ttf")]
    cuts = sorted(c for c in cuts if not re.search(r"Math|ExtraLight|Condensed(-Bold)?(Oblique|Italic)|Condensed-(Bold)?(Oblique|Italic)$", c))
    files, fonts = {c: src.tar_read("dejavu", f"package/ttf/{c}.ttf") for c in cuts}, {}
    rows, images = [], []
    for k in range(2300):
        cut, glyph = cuts[int(h01("fc", k) * len(cuts))], GLYPHS[int(h01("fl", k) * len(GLYPHS))]
        size = 17 + int(h01("fs", k) * 4)
        if (cut, size) not in fonts:
            fonts[cut, size] = ImageFont.truetype(io.BytesIO(files[cut]), size)
        picture = Image.new("L", (24, 24), 0)
        pen = ImageDraw.Draw(picture)
        x0, y0, x1, y1 = pen.textbbox((0, 0), glyph, font=fonts[cut, size])
        at = ((24 - (x1 - x0)) / 2 - x0 + 2 * h01("fx", k) - 1, (24 - (y1 - y0)) / 2 - y0 + 2 * h01("fy", k) - 1)
        pen.text(at, glyph, fill=210, font=fonts[cut, size])
        noise = np.random.default_rng(k).normal(0, 14, (24, 24))
        images.append(np.clip(np.asarray(picture).astype(float) + noise, 0, 255).astype(np.uint8))
        rows.append((cut.replace("DejaVu", ""), glyph))
    return Spec(pd.DataFrame(rows, columns=["cut", "letter"]), "cut", images=images, image_format="npz", train_max=1400,
                test_max=900, keep_dups=True, notes=["letter is given as a feature", "rendering depends on the FreeType inside Pillow: pixels may differ by version, labels do not"])


APPLIANCES = ["air_conditioner", "cfl", "fan", "fridge", "hairdryer", "heater", "bulb", "laptop", "microwave", "vacuum", "washer"]


@recipe("appliance-current")
def appliances(src):
    base = "sktime/datasets/data/PLAID/PLAID_"
    rows = src.series(f"{base}TRAIN.ts") + src.series(f"{base}TEST.ts")
    return Spec(pd.DataFrame({"series": [" ".join(f"{v:.3g}" for v in s[:1000]) for s, _ in rows],
                              "kind": [APPLIANCES[int(float(k))] for _, k in rows]}), "kind",
                notes=["series cut at 1000 samples, three significant digits"])
