"""A kernel with pyopencl, whose cache keeps the binaries of programs on disk."""

import numpy as np
import pyopencl as cl

SOURCE = """
__kernel void scale(__global float *values, float factor) { values[get_global_id(0)] *= factor; }
"""

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build()
values = np.arange(1024, dtype=np.float32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
cl.Kernel(program, "scale")(queue, (1024,), None, buffer, np.float32(3))
cl.enqueue_copy(queue, values, buffer)
print("PASS" if (values == np.arange(1024, dtype=np.float32) * 3).all() else "FAIL")
