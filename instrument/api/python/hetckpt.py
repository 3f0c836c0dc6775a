"""What a GPU program can ask of hetckpt for itself: a checkpoint, how often it was restored, a label for its snapshots.

    import hetckpt

    try:
        if hetckpt.checkpoint("state.hetsnap"):
            print("restored")
    except hetckpt.NotRunning:
        pass  # without hetckpt
    except hetckpt.Error as why:
        print("no checkpoint:", why)

Under hetckpt the calls are answered by its driver library, once the program has made its first CUDA or OpenCL call.
"""

import ctypes
import os

__all__ = ["checkpoint", "restored", "label", "Error", "NotRunning"]

# As in hetckpt.h.
NOT_RUNNING = -1
NOT_INITIALIZED = -2
INVALID = -3
NO_STORE = -4
UNATTENDED = -5
BUSY = -6
FAILED = -7


class Error(RuntimeError):
    """There is no checkpoint, or no label; the program runs on. `code` is one of this module's numbers."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class NotRunning(Error):
    """The program does not run under hetckpt."""


def checkpoint(path=None):
    """Make a checkpoint of the program, and return when it is complete: False in the program that runs on, True in the
    one that was restored from it.

    `path` is the archive, or a URL as `hetckpt dump --output` takes it; a file of that name is replaced. None: a
    snapshot in the store of the `hetckpt job` that runs the program.
    """
    return _call("hetckpt_checkpoint_v1", None if path is None else _text(os.fsencode(path))) == 1


def restored():
    """How often this process has been restored since it was started; 0 without hetckpt."""
    library = _library()
    return 0 if library is None else library.hetckpt_restored_v1()


def label(text):
    """Label the program's snapshots from now on, whoever makes them, with a line of text; "" removes the label."""
    _call("hetckpt_label_v1", _text(text.encode()))


def _text(text):
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return text


def _library():
    """hetckpt's driver library, if that is what the program has loaded."""
    try:
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return None
    if not hasattr(library, "hetckpt_error_v1"):
        return None
    library.hetckpt_error_v1.restype = ctypes.c_char_p
    return library


def _call(name, text):
    library = _library()
    if library is None:
        if "HETCKPT_SHIM" in os.environ:
            raise Error(NOT_INITIALIZED, "the program has made no CUDA call yet")
        raise NotRunning(NOT_RUNNING, "the program does not run under hetckpt")
    result = getattr(library, name)(ctypes.c_char_p(text))
    if result < 0:
        raise Error(result, library.hetckpt_error_v1().decode(errors="replace"))
    return result
