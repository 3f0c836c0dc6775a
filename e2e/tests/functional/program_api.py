"""A Python program that asks for a checkpoint of itself, once it has put something into device memory."""

import ctypes
import sys

import hetckpt

print("restored", hetckpt.restored())
try:
    hetckpt.checkpoint(sys.argv[1])
except hetckpt.NotRunning as why:
    print("not running:", why)
    sys.exit()
except hetckpt.Error as why:
    print("too early:", why.code == hetckpt.NOT_INITIALIZED)

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit(f"{name} gives {result}")


context, address, found = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4))
call("cuMemsetD32_v2", address, 4711, ctypes.c_size_t(1))

hetckpt.label("αβγ")
for bad in [lambda: hetckpt.label("a\nb"), hetckpt.checkpoint, lambda: hetckpt.checkpoint("/nowhere/at/all")]:
    try:
        bad()
    except hetckpt.Error as why:
        print(why.code, bool(str(why)))
try:
    hetckpt.label("a\0b")
except ValueError as why:
    print(why)

print("checkpoint", hetckpt.checkpoint(sys.argv[1]), flush=True)
call("cuMemcpyDtoH_v2", ctypes.byref(found), address, ctypes.c_size_t(4))
print("restored", hetckpt.restored(), found.value)
