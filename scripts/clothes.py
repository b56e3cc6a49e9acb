"""A folder of pictures to try things on: some of Fashion-MNIST as PNG files.

    python scripts/clothes.py path/to/fashion-mnist clothes [--each 200]

Writes clothes/<class>/<number>.png for three classes, and two more of each to
clothes-new. Needs nothing but Python.
"""

import argparse
import gzip
import struct
import zlib
from pathlib import Path

CLASSES = {1: "trousers", 7: "sneaker", 8: "bag"}
SIZE = 28
NEW = 2


def read(path, header):
    plain = path.with_suffix("")
    data = plain.read_bytes() if plain.is_file() else gzip.decompress(path.read_bytes())
    return data[header:]


def png(pixels):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + pixels[i : i + SIZE] for i in range(0, len(pixels), SIZE))
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--each", type=int, default=200)
    args = parser.parse_args()
    images = read(args.source / "train-images-idx3-ubyte.gz", 16)
    labels = read(args.source / "train-labels-idx1-ubyte.gz", 8)
    counts = dict.fromkeys(CLASSES, 0)
    more = args.target.with_name(args.target.name + "-new")
    for i, label in enumerate(labels):
        if counts.get(label, args.each + NEW) == args.each + NEW:
            continue
        counts[label] += 1
        kept = counts[label] <= args.each
        file = (args.target / CLASSES[label] if kept else more) / f"{i:05}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(images[i * SIZE * SIZE : (i + 1) * SIZE * SIZE]))
    print(f"{args.each * len(CLASSES)} pictures in {args.target}, {NEW * len(CLASSES)} in {more}")


if __name__ == "__main__":
    main()
