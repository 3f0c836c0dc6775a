// Three queues that wait for each other by events: two arrays are advanced, each in a queue of its own, and combined in a
// third. A user event holds all of it back; an out-of-order queue goes past what is held back; the result is mapped.
//
// Before it starts, the program does what cannot be done (a source with an error, an image) and checks how it is told.
#include "program.h"

static const char *const SOURCE =
    "__kernel void advance(__global uint *values, uint iterations)\n"
    "{\n"
    "    uint value = values[get_global_id(0)];\n"
    "    for (uint i = 0; i < iterations; ++i)\n"
    "        value = value * 1664525u + 1013904223u;\n"
    "    values[get_global_id(0)] = value;\n"
    "}\n"
    "__kernel void combine(__global uint *out, __global const uint *a, __global const uint *b)\n"
    "{\n"
    "    const size_t i = get_global_id(0);\n"
    "    out[i] = (a[i] ^ b[i]) + (uint)get_global_offset(0) * get_work_dim();\n"
    "}\n";

// A source with an error is refused with the compiler's log, and the program lives on.
static void check_build_failure(struct device device)
{
    const char *wrong = "__kernel void k(__global int *a) { a[0] = undeclared_name; }";
    cl_int status;
    cl_program program = clCreateProgramWithSource(device.context, 1, &wrong, NULL, &status);
    CHECK(status);
    expect("a build with an error", clBuildProgram(program, 0, NULL, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    char log[4096];
    CHECK(clGetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    if (!strstr(log, "undeclared_name") || !strstr(log, ":1:"))
        fail("the build log has no word of the error:", log);
    clCreateKernel(program, "k", &status);
    expect("a kernel of what was not built", status, CL_INVALID_PROGRAM_EXECUTABLE);
    expect("an option that is none", clBuildProgram(program, 0, NULL, "-fno-such", NULL, NULL), CL_INVALID_BUILD_OPTIONS);
    CHECK(clReleaseProgram(program));
}

static void check_refusals(struct device device, cl_command_queue queue)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    cl_int status;
    cl_mem image = clCreateImage(device.context, CL_MEM_READ_ONLY, &format, &description, NULL, &status);
    expect("an image", status, CL_INVALID_OPERATION);
    if (image)
        fail("there is an image", "");
    clCreateBuffer(device.context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 8, NULL, &status);
    expect("a buffer with contradicting flags", status, CL_INVALID_VALUE);
    clCreateBuffer(device.context, CL_MEM_COPY_HOST_PTR, 8, NULL, &status);
    expect("a buffer without its content", status, CL_INVALID_HOST_PTR);
    cl_mem buffer = make_buffer(device, CL_MEM_READ_WRITE, 256, NULL);
    const cl_buffer_region odd = {4, 8};
    clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &odd, &status);
    expect("an odd sub-buffer", status, CL_MISALIGNED_SUB_BUFFER_OFFSET);
    char bytes[8];
    expect("a read past the end", clEnqueueReadBuffer(queue, buffer, CL_TRUE, 250, 8, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    expect("a wait for nothing", clWaitForEvents(0, NULL), CL_INVALID_VALUE);
    expect("a copy onto itself", clEnqueueCopyBuffer(queue, buffer, buffer, 0, 4, 8, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    CHECK(clReleaseMemObject(buffer));
}

// A command behind an event with an error has an error too, and is not done.
static void check_error_event(struct device device, cl_command_queue queue)
{
    cl_int status;
    cl_event failing = clCreateUserEvent(device.context, &status), behind;
    CHECK(status);
    const cl_uint before = 5, after = 6;
    cl_uint got = 0;
    cl_mem buffer = make_buffer(device, CL_MEM_COPY_HOST_PTR, sizeof before, (void *)&before);
    CHECK(clEnqueueFillBuffer(queue, buffer, &after, sizeof after, 0, sizeof after, 1, &failing, &behind));
    CHECK(clSetUserEventStatus(failing, -77));
    expect("an event that is set twice", clSetUserEventStatus(failing, CL_COMPLETE), CL_INVALID_OPERATION);
    expect("a wait for an error", clWaitForEvents(1, &behind), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(clGetEventInfo(behind, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    expect("the command behind it", status, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
    expect("what it was not to change", (cl_int)got, (cl_int)before);
    CHECK(clReleaseEvent(failing));
    CHECK(clReleaseEvent(behind));
    CHECK(clReleaseMemObject(buffer));
}

static void CL_CALLBACK count_completion(cl_event event, cl_int status, void *counter)
{
    (void)event;
    if (status == CL_COMPLETE)
        __atomic_add_fetch((int *)counter, 1, __ATOMIC_SEQ_CST);
}

static void check_profile(cl_event event)
{
    cl_ulong times[4];
    for (cl_uint i = 0; i < 4; ++i)
        CHECK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof times[i], &times[i], NULL));
    if (times[0] > times[1] || times[1] > times[2] || times[2] > times[3])
        fail("times of a command are", "out of order");
}

// An out-of-order queue runs what is not held back; the rows of a rectangle go where they should.
static void check_out_of_order(struct device device, cl_command_queue queue, cl_event gate)
{
    cl_uint numbers[64], rows[16];
    for (cl_uint i = 0; i < 64; ++i)
        numbers[i] = i;
    cl_mem from = make_buffer(device, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers);
    cl_mem to = make_buffer(device, CL_MEM_READ_WRITE, sizeof numbers, NULL);
    const size_t from_origin[] = {4, 2, 0}, to_origin[] = {0, 0, 0}, region[] = {16, 4, 1};
    cl_event held, marked, copied;
    CHECK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &held));
    CHECK(clEnqueueCopyBufferRect(queue, from, to, from_origin, to_origin, region, 32, 0, 16, 0, 0, NULL, &copied));
    CHECK(clEnqueueMarkerWithWaitList(queue, 1, &copied, &marked));
    CHECK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof rows, rows, 1, &marked, NULL));
    for (cl_uint i = 0; i < 16; ++i)
        if (rows[i] != (2 + i / 4) * 8 + 1 + i % 4)
            fail("a rectangle is", "wrong");
    cl_int status;
    CHECK(clGetEventInfo(held, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    if (status == CL_COMPLETE)
        fail("what is held back is", "complete");
    CHECK(clReleaseEvent(held));
    CHECK(clReleaseEvent(marked));
    CHECK(clReleaseEvent(copied));
    CHECK(clReleaseMemObject(from));
    CHECK(clReleaseMemObject(to));
}

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"n", 4096, 256, 1u << 24}, {"iterations", 1000, 1, UINT32_MAX}, {0}};
    read_arguments(argc, argv, "cl_pipeline", arguments);
    const size_t n = arguments[0].value / 256 * 256, half = n / 2, bytes = n * sizeof(cl_uint);
    const cl_uint iterations = (cl_uint)arguments[1].value;

    const struct device device = open_device();
    cl_command_queue queue_a = make_queue(device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue queue_b = make_queue(device, 0);
    cl_command_queue last = make_queue(device, CL_QUEUE_PROFILING_ENABLE);
    check_build_failure(device);
    check_refusals(device, last);
    check_error_event(device, queue_b);
    cl_int status;
    cl_event gate = clCreateUserEvent(device.context, &status);
    CHECK(status);
    check_out_of_order(device, queue_a, gate);

    cl_program program = build(device, SOURCE, NULL);
    cl_kernel advance_a = make_kernel(program, "advance"), advance_b = make_kernel(program, "advance");
    cl_kernel combine = make_kernel(program, "combine");
    cl_mem a = make_buffer(device, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL);
    cl_mem b = make_buffer(device, CL_MEM_READ_WRITE, bytes, NULL);
    cl_mem out = make_buffer(device, CL_MEM_READ_WRITE, bytes, NULL);

    // The arrays' first content: one is mapped, one is written; both only once the gate is open.
    cl_uint *first = clEnqueueMapBuffer(queue_a, a, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes, 0, NULL, NULL, &status);
    CHECK(status);
    cl_uint *second = allocate(bytes);
    for (size_t i = 0; i < n; ++i) {
        first[i] = (cl_uint)i * 2654435761u;
        second[i] = xorshift32((cl_uint)i + 1);
    }
    cl_event unmapped, written, advanced[2], combined[2], all_combined;
    CHECK(clEnqueueUnmapMemObject(queue_a, a, first, 1, &gate, &unmapped));
    CHECK(clEnqueueWriteBuffer(queue_b, b, CL_FALSE, 0, bytes, second, 1, &gate, &written));

    SET_ARGUMENT(advance_a, 0, a);
    SET_ARGUMENT(advance_a, 1, iterations);
    SET_ARGUMENT(advance_b, 0, b);
    SET_ARGUMENT(advance_b, 1, iterations);
    CHECK(clEnqueueNDRangeKernel(queue_a, advance_a, 1, NULL, &n, NULL, 1, &unmapped, &advanced[0]));
    CHECK(clEnqueueNDRangeKernel(queue_b, advance_b, 1, NULL, &n, NULL, 0, NULL, &advanced[1]));
    CHECK(clEnqueueBarrierWithWaitList(last, 2, advanced, NULL));
    SET_ARGUMENT(combine, 0, out);
    SET_ARGUMENT(combine, 1, a);
    SET_ARGUMENT(combine, 2, b);
    const size_t local = 64;
    CHECK(clEnqueueNDRangeKernel(last, combine, 1, NULL, &half, &local, 0, NULL, &combined[0]));
    CHECK(clEnqueueNDRangeKernel(last, combine, 1, &half, &half, &local, 0, NULL, &combined[1]));
    CHECK(clEnqueueMarkerWithWaitList(last, 0, NULL, &all_combined));
    int num_complete = 0;
    CHECK(clSetEventCallback(combined[0], CL_COMPLETE, count_completion, &num_complete));
    CHECK(clSetEventCallback(combined[1], CL_COMPLETE, count_completion, &num_complete));
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    progress("launched");

    const cl_uint *result = clEnqueueMapBuffer(last, out, CL_TRUE, CL_MAP_READ, 0, bytes, 1, &all_combined, NULL, &status);
    CHECK(status);
    const struct step all = repeated(iterations);
    bool correct = true;
    for (size_t i = 0; i < n && correct; ++i) {
        const uint32_t value_a = (uint32_t)i * 2654435761u * all.factor + all.summand;
        const uint32_t value_b = second[i] * all.factor + all.summand;
        const uint32_t expected = (value_a ^ value_b) + (i < half ? 0 : (uint32_t)half);
        if (result[i] != expected)
            correct = mismatch("out", i, result[i], expected);
    }
    const uint64_t digest = digest_of(EMPTY_DIGEST, result, bytes);
    CHECK(clEnqueueUnmapMemObject(last, out, (void *)result, 0, NULL, NULL));
    CHECK(clFinish(last));
    if (num_complete != 2)
        correct = mismatch("callbacks", 0, num_complete, 2);
    check_profile(combined[0]);
    check_profile(combined[1]);

    const cl_event events[] = {gate, unmapped, written, advanced[0], advanced[1], combined[0], combined[1], all_combined};
    for (size_t i = 0; i < sizeof events / sizeof *events; ++i)
        CHECK(clReleaseEvent(events[i]));
    CHECK(clReleaseMemObject(a));
    CHECK(clReleaseMemObject(b));
    CHECK(clReleaseMemObject(out));
    CHECK(clReleaseKernel(advance_a));
    CHECK(clReleaseKernel(advance_b));
    CHECK(clReleaseKernel(combine));
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue_a));
    CHECK(clReleaseCommandQueue(queue_b));
    CHECK(clReleaseCommandQueue(last));
    CHECK(clReleaseContext(device.context));
    return finish(digest, correct);
}
