def load_image(path, dtype=None):
    """A batch of one image, prepared as in training: upright, resized by a triangle
    filter (antialiased bilinear), in grey or colour, in 0..1, normalised."""
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    def resized(pixels, length, axis):
        pixels = np.moveaxis(pixels, axis, 0)
        ratio = np.float32(len(pixels) / length)
        centre = (np.arange(length, dtype=np.float32) + np.float32(0.5)) * ratio - np.float32(0.5)
        distance = np.abs(np.arange(len(pixels), dtype=np.float32) - centre[:, None])
        weights = np.maximum(0, 1 - distance / max(ratio, np.float32(1)))
        weights /= weights.sum(1, keepdims=True)
        return np.moveaxis(np.tensordot(weights, pixels, 1), 0, axis)

    image = ImageOps.exif_transpose(Image.open(path))
    # Grey of 16 bits stays as it is until it has its size.
    largest = 65535 if image.mode.startswith("I") else 255
    if largest == 255:
        image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    channels, height, width = SHAPE
    wide, high = width, height
    if FIT == "crop":
        ratio = max(width / image.width, height / image.height)
        wide, high = (max(int(n * ratio + 0.5), 1) for n in image.size)
    pixels = np.asarray(image, np.float32).reshape(image.height, image.width, -1)
    pixels = resized(resized(pixels, high, 0), wide, 1)
    pixels = np.floor(np.clip(pixels, 0, largest) + np.float32(0.5))
    if largest > 255:
        pixels = (pixels + 128) // 257
    top, left = (high - height) // 2, (wide - width) // 2
    pixels = pixels[top : top + height, left : left + width]
    if channels == 1 and pixels.shape[2] == 3:
        grey = pixels.astype(np.int64) @ np.array([[2126], [7152], [722]])
        pixels = (grey + 5000) // 10000
    pixels = np.repeat(pixels.astype(np.float32), channels // pixels.shape[2], 2) / np.float32(255)
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    x = x.to(dtype or torch.float32)
    if MEAN is not None:
        mean, std = (torch.tensor(v, dtype=x.dtype).view(-1, 1, 1) for v in (MEAN, STD))
        x = (x - mean) / std
    return x.reshape(1, *INPUT)
