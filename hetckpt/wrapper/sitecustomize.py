"""What Python programs load first under `hetckpt run`, which puts this folder at the head of PYTHONPATH.

Numba has NVIDIA's nvJitLink link its kernels to machine code, which only the GPU that it is for can run and which stops
at kernels' ends alone. Where that library is missing Numba has the driver link, which is hetckpt's, and keeps the PTX. So
Numba, and nobody else, is told here that it is missing.

A `sitecustomize` that stands further behind on the path is loaded as ever.
"""

import os
import sys

_LOADER = "cuda.pathfinder"
_HIDDEN = "nvJitLink"


def _asked_by_numba():
    """Tells whether Numba is among the callers."""
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".", 1)[0] in ("numba", "numba_cuda"):
            return True
        frame = frame.f_back
    return False


def _hide(module):
    """Has the module that finds NVIDIA's libraries find all but one for Numba."""
    import warnings

    # What would be said of it otherwise.
    warnings.filterwarnings("ignore", message=r"cuda\.bindings\.nvjitlink is not available")
    load = module.load_nvidia_dynamic_lib
    missing = module.DynamicLibNotFoundError

    def load_nvidia_dynamic_lib(libname):
        if libname == _HIDDEN and _asked_by_numba():
            raise missing("hetckpt has Numba link by the driver, which keeps the PTX of its kernels")
        return load(libname)

    module.load_nvidia_dynamic_lib = load_nvidia_dynamic_lib


class _Finder:
    """Finds one module as the others do, and changes it once it is loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != _LOADER:
            return None
        sys.meta_path.remove(cls)
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            execute(module)
            # Of another version it may lack what is changed; then nothing is.
            if hasattr(module, "load_nvidia_dynamic_lib") and hasattr(module, "DynamicLibNotFoundError"):
                _hide(module)

        spec.loader.exec_module = exec_module
        return spec


def _load_next():
    """Loads the `sitecustomize` that this one stands before."""
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if sys.version_info >= (3, 4):
    sys.meta_path.insert(0, _Finder)
    _load_next()
