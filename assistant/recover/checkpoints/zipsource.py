"""A file as `zipfile` may read it: opened through the bounded reader, a bounded number of bytes at once."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from assistant.untrusted import open_regular

ZIP_DIRECTORY_BYTES = 16 << 20
"""Of 200,000 members; zipfile takes some ten times as much memory for them."""


class ZipSource(io.RawIOBase):
    """A file for `zipfile`; the size of its directory is the file's own claim, so it is bounded."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes.

        Raises:
            BadZipFile: More is wanted at once than a directory of members can take.
        """
        if size > ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes")
        return self._file.read(size if size >= 0 else ZIP_DIRECTORY_BYTES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
