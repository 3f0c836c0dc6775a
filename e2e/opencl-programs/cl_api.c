// What the other programs do not call: sub-buffers, boxes, patterns, mapped regions, tasks, queries, counted references,
// callbacks, and refusals with their errors. Each check states a rule of the OpenCL 1.2 specification, so the program passes on
// any implementation. Then a long kernel writes through a sub-buffer whose buffer the program has released, while a region is
// mapped and a user event holds commands back.
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include "cl_api_kernels.h"
#include "cl_api_memory.h"
#include "program.h"

#include <unistd.h>

static const char *const SOURCE =
    "__kernel void advance(__global uint *values, uint iterations)\n"
    "{\n"
    "    uint value = values[get_global_id(0)];\n"
    "    for (uint i = 0; i < iterations; ++i)\n"
    "        value = value * 1664525u + 1013904223u;\n"
    "    values[get_global_id(0)] = value;\n"
    "}\n"
    "__kernel void sizes(__global uint *out)\n"
    "{\n"
    "    out[get_global_id(0)] = get_work_dim() * 100 + get_global_size(0) * 10 + get_local_size(0);\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(8, 4, 1)))\n"
    "void blend(__global const float *restrict in, __constant uint4 *table, __local short *scratch, __global volatile int *out,\n"
    "           uchar last)\n"
    "{\n"
    "    scratch[get_local_id(0)] = last;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    out[get_global_id(0)] = (int)in[0] + table[0].x + scratch[0];\n"
    "}\n";

// Callbacks come at any time after what they tell of.
static void wait_for_count(const int *counter, int expected)
{
    for (int i = 0; i < 10000 && __atomic_load_n(counter, __ATOMIC_SEQ_CST) < expected; ++i)
        usleep(1000);
    EXPECT_TRUE(__atomic_load_n(counter, __ATOMIC_SEQ_CST) == expected);
}

static cl_int execution_status(cl_event event)
{
    cl_int status;
    CHECK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

// True of a device without later versions' rules.
static bool is_1_2(struct device device)
{
    char version[128];
    CHECK(clGetDeviceInfo(device.id, CL_DEVICE_VERSION, sizeof version, version, NULL));
    return !strncmp(version, "OpenCL 1.2", 10);
}

static cl_event user_event(struct device device)
{
    cl_int status;
    cl_event event = clCreateUserEvent(device.context, &status);
    CHECK(status);
    return event;
}

static void check_contexts(struct device device)
{
    cl_platform_id platform;
    cl_int status;
    CHECK(clGetDeviceInfo(device.id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context context = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &status);
    CHECK(status);
    cl_uint num_devices;
    CHECK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &num_devices));
    EXPECT_INFO(num_devices, clGetContextInfo, context, CL_CONTEXT_NUM_DEVICES);
    EXPECT_INFO(device.id, clGetContextInfo, device.context, CL_CONTEXT_DEVICES);
    cl_context_properties got[3];
    CHECK(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof got, got, NULL));
    EXPECT_TRUE(!memcmp(got, properties, sizeof got));
    EXPECT_COUNTED(Context, context, clGetContextInfo, CL_CONTEXT_REFERENCE_COUNT);
    EXPECT(clGetContextInfo(context, CL_QUEUE_CONTEXT, sizeof got, got, NULL), CL_INVALID_VALUE);
    EXPECT(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, 1, got, NULL), CL_INVALID_VALUE);
    // What belongs to different contexts does not go together.
    cl_mem stranger = make_buffer((struct device){device.id, context}, 0, 64, NULL);
    cl_command_queue queue = make_queue(device, 0);
    EXPECT(clEnqueueReadBuffer(queue, stranger, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK(clReleaseMemObject(stranger));
    CHECK(clReleaseContext(context));
    const cl_context_properties unknown[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, CL_QUEUE_CONTEXT, 1, 0};
    EXPECT_NO_OBJECT(clCreateContextFromType(unknown, CL_DEVICE_TYPE_ALL, NULL, NULL, &status), CL_INVALID_PROPERTY);
    EXPECT_NO_OBJECT(clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, &status, &status), CL_INVALID_VALUE);

    EXPECT_INFO(device.context, clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT);
    EXPECT_INFO(device.id, clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE);
    EXPECT_INFO((cl_command_queue_properties)0, clGetCommandQueueInfo, queue, CL_QUEUE_PROPERTIES);
    EXPECT_COUNTED(CommandQueue, queue, clGetCommandQueueInfo, CL_QUEUE_REFERENCE_COUNT);
    EXPECT_NO_OBJECT(clCreateCommandQueue(device.context, device.id, 1u << 20, &status), CL_INVALID_VALUE);
    CHECK(clReleaseCommandQueue(queue));
}


static void CL_CALLBACK count_status(cl_event event, cl_int status, void *counters)
{
    (void)event;
    __atomic_add_fetch((int *)counters + (status < 0 ? 4 : status), 1, __ATOMIC_SEQ_CST);
}

// Order in an out-of-order queue: only wait lists and barriers make it.
static void check_events(struct device device)
{
    cl_command_queue queue = make_queue(device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_mem buffer = make_buffer(device, 0, 16, NULL);
    cl_event gate = user_event(device), second = user_event(device), held, free_marker, barrier, behind, behind_second;
    cl_uint values[] = {1, 2, 3, 4};
    int counters[5] = {0}, failures[5] = {0};
    EXPECT_INFO((cl_command_type)CL_COMMAND_USER, clGetEventInfo, gate, CL_EVENT_COMMAND_TYPE);
    EXPECT_INFO((cl_command_queue)NULL, clGetEventInfo, gate, CL_EVENT_COMMAND_QUEUE);
    EXPECT_INFO(device.context, clGetEventInfo, gate, CL_EVENT_CONTEXT);
    EXPECT_INFO((cl_int)CL_SUBMITTED, clGetEventInfo, gate, CL_EVENT_COMMAND_EXECUTION_STATUS);
    EXPECT_COUNTED(Event, gate, clGetEventInfo, CL_EVENT_REFERENCE_COUNT);
    cl_ulong time;
    EXPECT(clGetEventProfilingInfo(gate, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL), CL_PROFILING_INFO_NOT_AVAILABLE);
    EXPECT(clSetUserEventStatus(gate, CL_RUNNING), CL_INVALID_VALUE);

    CHECK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof values, values, 1, &gate, &held));
    for (cl_int status = CL_COMPLETE; status <= CL_SUBMITTED; ++status)
        CHECK(clSetEventCallback(held, status, count_status, counters));
    EXPECT(clSetEventCallback(held, CL_QUEUED, count_status, counters), CL_INVALID_VALUE);
    EXPECT(clSetEventCallback(held, CL_COMPLETE, NULL, counters), CL_INVALID_VALUE);
    // What waits for nothing may go past what waits; not every implementation lets it.
    const cl_event complete = user_event(device);
    CHECK(clSetUserEventStatus(complete, CL_COMPLETE));
    CHECK(clEnqueueMarkerWithWaitList(queue, 1, &complete, &free_marker));
    if (is_1_2(device))
        CHECK(clWaitForEvents(1, &free_marker));
    EXPECT_TRUE(execution_status(held) > CL_RUNNING);
    EXPECT(clGetEventProfilingInfo(free_marker, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL), CL_PROFILING_INFO_NOT_AVAILABLE);
    // Without a wait list a barrier waits for all before it, and all after it for the barrier.
    CHECK(clEnqueueBarrierWithWaitList(queue, 0, NULL, &barrier));
    CHECK(clEnqueueMarkerWithWaitList(queue, 1, &complete, &behind));
    // Of OpenCL 1.1; the specification names the barrier in its stead, and later implementations have only that.
    CHECK(is_1_2(device) ? clEnqueueWaitForEvents(queue, 1, &second) : clEnqueueBarrierWithWaitList(queue, 1, &second, NULL));
    CHECK(clEnqueueMarker(queue, &behind_second));
    CHECK(clFlush(queue));
    usleep(20000);
    EXPECT_TRUE(execution_status(barrier) > CL_COMPLETE && execution_status(behind) > CL_COMPLETE);
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK(clWaitForEvents(1, &behind));
    EXPECT_TRUE(execution_status(held) == CL_COMPLETE && execution_status(barrier) == CL_COMPLETE);
    EXPECT_TRUE(execution_status(behind_second) > CL_COMPLETE);
    CHECK(clSetUserEventStatus(second, CL_COMPLETE));
    CHECK(clEnqueueBarrier(queue));
    CHECK(clFinish(queue));
    EXPECT_TRUE(execution_status(behind_second) == CL_COMPLETE);
    for (int status = CL_COMPLETE; status <= CL_SUBMITTED; ++status)
        wait_for_count(&counters[status], 1);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 0, &gate, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueMarker(queue, NULL), CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(0, NULL), CL_INVALID_VALUE);

    // An error goes to whoever waits for it, and to callbacks; PoCL 3.1 does not call those.
    cl_event failing = user_event(device), failed;
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof values, values, 1, &failing, &failed));
    CHECK(clSetEventCallback(failed, CL_COMPLETE, count_status, failures));
    CHECK(clSetUserEventStatus(failing, -5));
    EXPECT(clWaitForEvents(1, &failed), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    if (is_1_2(device))
        wait_for_count(&failures[4], 1);
    const cl_event events[] = {gate, second, held, free_marker, barrier, behind, behind_second, complete, failing, failed};
    for (size_t i = 0; i < sizeof events / sizeof *events; ++i)
        CHECK(clReleaseEvent(events[i]));
    CHECK(clReleaseMemObject(buffer));
    CHECK(clReleaseCommandQueue(queue));
}

// The order in which callbacks came.
struct order {
    int count, last;
};

static void CL_CALLBACK first_of_two(cl_mem memory, void *data)
{
    (void)memory;
    struct order *order = data;
    order->last = 1;
    __atomic_add_fetch(&order->count, 1, __ATOMIC_SEQ_CST);
}

static void CL_CALLBACK second_of_two(cl_mem memory, void *data)
{
    (void)memory;
    struct order *order = data;
    order->last = 2;
    __atomic_add_fetch(&order->count, 1, __ATOMIC_SEQ_CST);
}

// Memory ends when the program and the commands about it have done with it: kernels do not hold it, sub-buffers do.
static void check_ends(struct device device, cl_command_queue queue, cl_kernel kernel)
{
    struct order order = {0};
    cl_uint values[64] = {0};
    const cl_uint filling = 5;
    cl_event gate = user_event(device);
    cl_mem buffer = make_buffer(device, CL_MEM_USE_HOST_PTR, sizeof values, values), sub = make_sub_buffer(buffer, 0, 128);
    CHECK(clSetMemObjectDestructorCallback(buffer, first_of_two, &order));
    CHECK(clSetMemObjectDestructorCallback(buffer, second_of_two, &order));
    EXPECT(clSetMemObjectDestructorCallback(buffer, NULL, &order), CL_INVALID_VALUE);
    SET_ARGUMENT(kernel, 0, buffer);
    CHECK(clEnqueueFillBuffer(queue, buffer, &filling, sizeof filling, 0, sizeof values, 1, &gate, NULL));
    CHECK(clReleaseMemObject(buffer));
    usleep(20000);
    EXPECT_TRUE(__atomic_load_n(&order.count, __ATOMIC_SEQ_CST) == 0);
    CHECK(clReleaseMemObject(sub));
    usleep(20000);
    EXPECT_TRUE(__atomic_load_n(&order.count, __ATOMIC_SEQ_CST) == 0);
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK(clFinish(queue));
    wait_for_count(&order.count, 2);
    EXPECT_TRUE(order.last == 1);
    CHECK(clReleaseEvent(gate));
}

static void check_refusals(struct device device, cl_command_queue queue)
{
    cl_int status;
    cl_ulong most;
    char bytes[64] = {0};
    CHECK(clGetDeviceInfo(device.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    EXPECT_NO_OBJECT(clCreateBuffer(device.context, 0, 0, NULL, &status), CL_INVALID_BUFFER_SIZE);
    EXPECT_NO_OBJECT(clCreateBuffer(device.context, 0, most + 1, NULL, &status), CL_INVALID_BUFFER_SIZE);
    EXPECT_NO_OBJECT(clCreateBuffer(device.context, 1u << 20, 8, NULL, &status), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(clCreateBuffer(device.context, 0, 8, bytes, &status), CL_INVALID_HOST_PTR);
    cl_mem buffer = make_buffer(device, CL_MEM_HOST_NO_ACCESS, sizeof bytes, NULL);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, bytes, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK(clReleaseMemObject(buffer));
    buffer = make_buffer(device, 0, sizeof bytes, NULL);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, SIZE_MAX, 8, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clGetMemObjectInfo(buffer, CL_CONTEXT_DEVICES, sizeof bytes, bytes, NULL), CL_INVALID_VALUE);
    CHECK(clReleaseMemObject(buffer));
}

// What OpenCL 1.2 refuses and later versions allow, or their implementations let pass. Devices of 1.2 need have no images.
static void check_refusals_of_1_2(struct device device, cl_command_queue queue, cl_kernel kernel, cl_program program)
{
    cl_int status;
    cl_bool has_images;
    cl_mem buffer = make_buffer(device, 0, 2048, NULL), low = make_sub_buffer(buffer, 0, 1024), high = make_sub_buffer(buffer, 512, 1024);
    const size_t from[] = {508, 0, 0}, beside[] = {508, 8, 0}, to[] = {0, 0, 0}, region[] = {8, 2, 1};
    EXPECT(clEnqueueCopyBufferRect(queue, low, high, from, to, region, 64, 0, 64, 0, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    EXPECT(clEnqueueCopyBufferRect(queue, low, high, from, to, region, 64, 0, 32, 0, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    CHECK(clEnqueueCopyBufferRect(queue, low, high, to, to, region, 64, 0, 32, 0, 0, NULL, NULL));
    EXPECT(clEnqueueCopyBufferRect(queue, low, high, beside, to, region, 64, 0, 64, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(MAP(low, 1u << 20, 0, 8), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(MAP(low, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 8), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(clCreateContextFromType(NULL, 1u << 20, NULL, NULL, &status), CL_INVALID_DEVICE_TYPE);
    const cl_uint one = 1;
    const size_t nothing = 0, some = 8;
    size_t width;
    EXPECT(clGetImageInfo(buffer, CL_IMAGE_WIDTH, sizeof width, &width, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clSetKernelArg(kernel, 0, sizeof kernel, &kernel), CL_INVALID_MEM_OBJECT);
    SET_ARGUMENT(kernel, 0, low);
    SET_ARGUMENT(kernel, 1, one);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &some, &nothing, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &nothing, NULL, 0, NULL, NULL), CL_INVALID_GLOBAL_WORK_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, NULL, NULL, 0, NULL, NULL), CL_INVALID_GLOBAL_WORK_SIZE);
    // A kernel that requires a size of its groups must be given it, and in the dimensions that it has.
    cl_kernel blend = make_kernel(program, "blend");
    const size_t sides[] = {8, 8}, required[] = {8, 4};
    const cl_uchar last = 1;
    SET_ARGUMENT(blend, 0, low);
    SET_ARGUMENT(blend, 1, high);
    CHECK(clSetKernelArg(blend, 2, 64, NULL));
    SET_ARGUMENT(blend, 3, low);
    SET_ARGUMENT(blend, 4, last);
    EXPECT(clEnqueueNDRangeKernel(queue, blend, 2, NULL, sides, NULL, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, blend, 1, NULL, sides, NULL, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, blend, 1, NULL, sides, required, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    CHECK(clEnqueueNDRangeKernel(queue, blend, 2, NULL, sides, required, 0, NULL, NULL));
    CHECK(clFinish(queue));
    CHECK(clReleaseKernel(blend));
    const cl_event none = NULL;
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, &none, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueTask(queue, kernel, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueTask(queue, kernel, 0, &none, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueWaitForEvents(queue, 0, NULL), CL_INVALID_VALUE);
    cl_event task;
    CHECK(clEnqueueTask(queue, kernel, 0, NULL, &task));
    EXPECT_INFO((cl_command_type)CL_COMMAND_TASK, clGetEventInfo, task, CL_EVENT_COMMAND_TYPE);
    CHECK(clReleaseEvent(task));
    CHECK(clFinish(queue));
    CHECK(clReleaseMemObject(low));
    CHECK(clReleaseMemObject(high));
    CHECK(clReleaseMemObject(buffer));
    CHECK(clGetDeviceInfo(device.id, CL_DEVICE_IMAGE_SUPPORT, sizeof has_images, &has_images, NULL));
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    if (has_images)
        return;
    EXPECT_NO_OBJECT(clCreateImage(device.context, 0, &format, &description, NULL, &status), CL_INVALID_OPERATION);
    EXPECT_NO_OBJECT(clCreateImage2D(device.context, 0, &format, 8, 8, 0, NULL, &status), CL_INVALID_OPERATION);
    EXPECT_NO_OBJECT(clCreateSampler(device.context, CL_TRUE, CL_ADDRESS_NONE, CL_FILTER_LINEAR, &status), CL_INVALID_OPERATION);
}

int main(int argc, char **argv)
{
    struct argument arguments[] = {{"n", 2048, 256, 1u << 24}, {"iterations", 1000, 1, UINT32_MAX}, {0}};
    read_arguments(argc, argv, "cl_api", arguments);
    const size_t n = arguments[0].value / 256 * 256, bytes = n * sizeof(cl_uint);
    const cl_uint iterations = (cl_uint)arguments[1].value, filling = 0x01020304;
    cl_int status;

    const struct device device = open_device();
    cl_command_queue queue = make_queue(device, CL_QUEUE_PROFILING_ENABLE);
    cl_command_queue other = make_queue(device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_program program = build(device, SOURCE, "-cl-kernel-arg-info -Werror");
    cl_kernel advance = make_kernel(program, "advance");
    check_contexts(device);
    check_sub_buffers(device, queue, advance);
    check_boxes(device, queue);
    check_fills(device, queue);
    check_maps(device, queue);
    check_kernels(device, queue, program);
    check_events(device);
    check_ends(device, queue, advance);
    check_refusals(device, queue);
    if (is_1_2(device))
        check_refusals_of_1_2(device, queue, advance, program);

    // The first half of the buffer is mapped, the second one is the kernel's; a copy to the first half is held back.
    cl_uint *values = allocate(2 * bytes);
    for (size_t i = 0; i < 2 * n; ++i)
        values[i] = xorshift32((cl_uint)i + 1);
    cl_mem parent = make_buffer(device, CL_MEM_COPY_HOST_PTR, 2 * bytes, values);
    cl_mem first = make_sub_buffer(parent, 0, bytes), second = make_sub_buffer(parent, bytes, bytes);
    CHECK(clReleaseMemObject(parent));
    cl_uint *mapped = clEnqueueMapBuffer(queue, first, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, bytes / 2, bytes / 2, 0, NULL, NULL, &status);
    CHECK(status);
    memset(mapped, 1, bytes / 4);
    cl_event gate = user_event(device), copied;
    CHECK(clEnqueueCopyBuffer(other, second, first, 0, 0, bytes / 2, 1, &gate, &copied));
    SET_ARGUMENT(advance, 0, second);
    SET_ARGUMENT(advance, 1, iterations);
    CHECK(clEnqueueNDRangeKernel(queue, advance, 1, NULL, &n, NULL, 0, NULL, NULL));
    CHECK(clFlush(queue));
    progress("launched");
    CHECK(clFinish(queue));
    EXPECT_TRUE(execution_status(copied) > CL_RUNNING);
    mapped[n / 2 - 1] = filling;
    CHECK(clEnqueueUnmapMemObject(queue, first, mapped, 0, NULL, NULL));
    CHECK(clFinish(queue));
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK(clWaitForEvents(1, &copied));
    cl_uint *got = allocate(2 * bytes);
    CHECK(clEnqueueReadBuffer(queue, first, CL_FALSE, 0, bytes, got, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, second, CL_TRUE, 0, bytes, got + n, 0, NULL, NULL));

    const struct step all = repeated(iterations);
    for (size_t i = 0; i < n; ++i)
        values[n + i] = values[n + i] * all.factor + all.summand;
    memcpy(values, values + n, bytes / 2);
    memset(values + n / 2, 1, bytes / 4);
    values[n - 1] = filling;
    bool correct = true;
    for (size_t i = 0; i < 2 * n && correct; ++i)
        if (got[i] != values[i])
            correct = mismatch("values", i, got[i], values[i]);
    CHECK(clReleaseEvent(gate));
    CHECK(clReleaseEvent(copied));
    CHECK(clReleaseMemObject(first));
    CHECK(clReleaseMemObject(second));
    CHECK(clReleaseKernel(advance));
    CHECK(clReleaseProgram(program));
    CHECK(clReleaseCommandQueue(queue));
    CHECK(clReleaseCommandQueue(other));
    CHECK(clReleaseContext(device.context));
    return finish(digest_of(EMPTY_DIGEST, got, 2 * bytes), correct);
}
