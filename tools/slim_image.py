"""Leaves in an image's environment what one program uses: `ENVIRONMENT/bin/python slim_image.py PACKAGE...`.

Imports every module of the packages, so that an image that lacks one is not built, and compiles what was imported:
an image's root is read-only, so what has no bytecode there is compiled at every start. The bytecode is not compared
with its source's time, which a copy may change. Then it removes test suites, type stubs, and of Kubernetes' client the
generated classes, one for every kind and group, that nothing imported: Hulk sends JSON of its own.
"""

import importlib
import pkgutil
import py_compile
import shutil
import sys
import sysconfig
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))


def main() -> None:
    """Import, compile, remove."""
    sys.dont_write_bytecode = True
    for package in sys.argv[1:]:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    loaded = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for source in sorted(loaded):
        if source.suffix == ".py" and source.is_relative_to(SITE):
            py_compile.compile(
                str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True
            )
    for folder in [path for path in SITE.rglob("tests") if path.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)  # one may be in another
    for generated in (*SITE.glob("kubernetes/**/client/api/*.py"), *SITE.glob("kubernetes/**/client/models/*.py")):
        if generated not in loaded and generated.name != "__init__.py":
            generated.unlink()
    for stub in SITE.rglob("*.pyi"):
        stub.unlink()


if __name__ == "__main__":
    main()
