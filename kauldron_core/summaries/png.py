"""Pictures as PNG files, with nothing but the standard library."""

from __future__ import annotations

import base64
import struct
import zlib

from kauldron_core.ktyping import UInt8, typechecked

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _EIGHT_BITS, _NO_FILTER = 2, 8, b"\0"


@typechecked
def encode_png(picture: UInt8["h w 3"]) -> bytes:
    """Returns the picture as a PNG file.

    Source: PNG Specification, third edition (W3C, 2025), sections 5 and 11.2.
    """
    height, width, _ = picture.shape
    rows = b"".join(_NO_FILTER + row.tobytes() for row in picture)
    header = struct.pack(">IIBBBBB", width, height, _EIGHT_BITS, _RGB, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def html_image(picture: UInt8["h w 3"], *, min_size: int = 96) -> str:
    """Returns an HTML element with the picture inside it; small ones are enlarged to `min_size` screen pixels."""
    height, width, _ = picture.shape
    scale = max(1, -(-min_size // max(height, width)))
    data = base64.b64encode(encode_png(picture)).decode()
    style = f"width:{width * scale}px;height:{height * scale}px;image-rendering:pixelated"
    return f'<img style="{style}" src="data:image/png;base64,{data}">'


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
