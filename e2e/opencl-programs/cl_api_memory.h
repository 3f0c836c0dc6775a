// The part of cl_api.c that is about memory: sub-buffers, boxes, patterns and mapped regions.
#pragma once

#include "program.h"

// A sub-buffer is its buffer's memory, keeps it, and can do no more than it.
static void check_sub_buffers(struct device device, cl_command_queue queue, cl_kernel kernel)
{
    cl_uint values[512], got[512];
    for (cl_uint i = 0; i < 512; ++i)
        values[i] = got[i] = i;
    cl_mem parent = make_buffer(device, CL_MEM_USE_HOST_PTR, sizeof values, values);
    cl_mem sub = make_sub_buffer(parent, 512, 1024), next = make_sub_buffer(parent, 1024, 1024);
    EXPECT_INFO(parent, clGetMemObjectInfo, sub, CL_MEM_ASSOCIATED_MEMOBJECT);
    EXPECT_INFO((size_t)512, clGetMemObjectInfo, sub, CL_MEM_OFFSET);
    EXPECT_INFO((size_t)1024, clGetMemObjectInfo, sub, CL_MEM_SIZE);
    EXPECT_INFO((void *)(values + 128), clGetMemObjectInfo, sub, CL_MEM_HOST_PTR);
    EXPECT_INFO((cl_mem)NULL, clGetMemObjectInfo, parent, CL_MEM_ASSOCIATED_MEMOBJECT);
    EXPECT_INFO((cl_mem_object_type)CL_MEM_OBJECT_BUFFER, clGetMemObjectInfo, sub, CL_MEM_TYPE);
    EXPECT_INFO(device.context, clGetMemObjectInfo, sub, CL_MEM_CONTEXT);
    cl_mem_flags flags;
    CHECK(clGetMemObjectInfo(sub, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    EXPECT_TRUE(flags & CL_MEM_USE_HOST_PTR);
    EXPECT_COUNTED(MemObject, sub, clGetMemObjectInfo, CL_MEM_REFERENCE_COUNT);

    const cl_uint one = 1;
    const size_t all = 256;
    SET_ARGUMENT(kernel, 0, sub);
    SET_ARGUMENT(kernel, 1, one);
    CHECK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, NULL, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, parent, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    for (cl_uint i = 0; i < 512; ++i)
        EXPECT_TRUE(got[i] == (i / 128 % 3 ? i * 1664525u + 1013904223u : i));
    // Of the overlap of both sub-buffers each reads what was written through the other one.
    cl_uint numbers[2] = {7, 8};
    CHECK(clEnqueueWriteBuffer(queue, next, CL_FALSE, 504, sizeof numbers, numbers, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, sub, CL_TRUE, 1016, 8, got, 0, NULL, NULL));
    EXPECT_TRUE(got[0] == 7 && got[1] == 8);
    // A sub-buffer's bounds are its own, whatever its buffer has behind it.
    EXPECT(clEnqueueReadBuffer(queue, sub, CL_TRUE, 1020, 8, got, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBuffer(queue, sub, next, 512, 4, 8, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    cl_int status;
    cl_buffer_region bad = {4, 8};
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &bad, &status), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    bad = (cl_buffer_region){1024, 1025};
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &bad, &status), CL_INVALID_VALUE);
    bad = (cl_buffer_region){0, 0};
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &bad, &status), CL_INVALID_BUFFER_SIZE);
    bad = (cl_buffer_region){0, 128};
    EXPECT_NO_OBJECT(clCreateSubBuffer(sub, 0, CL_BUFFER_CREATE_TYPE_REGION, &bad, &status), CL_INVALID_MEM_OBJECT);
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, 0, 0, &bad, &status), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &status), CL_INVALID_VALUE);
    // The buffer lives as long as a sub-buffer does.
    CHECK(clReleaseMemObject(parent));
    CHECK(clEnqueueReadBuffer(queue, sub, CL_TRUE, 0, 8, got, 0, NULL, NULL));
    EXPECT_TRUE(got[0] == 128 * 1664525u + 1013904223u);
    CHECK(clReleaseMemObject(sub));
    CHECK(clReleaseMemObject(next));

    parent = make_buffer(device, CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 256, NULL);
    cl_mem inheriting = make_sub_buffer(parent, 0, 128);
    EXPECT(clEnqueueReadBuffer(queue, inheriting, CL_TRUE, 0, 8, got, 0, NULL, NULL), CL_INVALID_OPERATION);
    EXPECT_NO_OBJECT(clCreateSubBuffer(parent, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &bad, &status), CL_INVALID_VALUE);
    CHECK(clReleaseMemObject(inheriting));
    CHECK(clReleaseMemObject(parent));
}

enum { BOX_BYTES = 1280 };

// A box in memory: where it begins and how far apart rows and slices are.
struct box {
    size_t origin[3], row_pitch, slice_pitch;
};

static void copy_box(cl_uchar *to, struct box dst, const cl_uchar *from, struct box src, const size_t *region)
{
    for (size_t z = 0; z < region[2]; ++z)
        for (size_t y = 0; y < region[1]; ++y)
            memmove(to + (dst.origin[2] + z) * dst.slice_pitch + (dst.origin[1] + y) * dst.row_pitch + dst.origin[0],
                    from + (src.origin[2] + z) * src.slice_pitch + (src.origin[1] + y) * src.row_pitch + src.origin[0], region[0]);
}

static void check_boxes(struct device device, cl_command_queue queue)
{
    cl_uchar host[BOX_BYTES], a[BOX_BYTES], b[BOX_BYTES], back[BOX_BYTES] = {0}, got[BOX_BYTES], expected[BOX_BYTES] = {0};
    for (size_t i = 0; i < BOX_BYTES; ++i) {
        host[i] = (cl_uchar)xorshift32(i + 1);
        a[i] = (cl_uchar)i;
        b[i] = (cl_uchar)~i;
    }
    cl_mem memory_a = make_buffer(device, CL_MEM_COPY_HOST_PTR, BOX_BYTES, a), memory_b = make_buffer(device, CL_MEM_COPY_HOST_PTR, BOX_BYTES, b);
    // What the host writes goes into the first one through a sub-buffer of it.
    cl_mem sub_a = make_sub_buffer(memory_a, 256, BOX_BYTES - 256);
    const size_t region[] = {12, 3, 2}, empty[] = {12, 0, 2};
    const struct box in_host = {{5, 1, 2}, 20, 100}, in_a = {{3, 2, 1}, 40, 240}, in_b = {{1, 1, 1}, 32, 128};
    const struct box beside = {{16, 2, 1}, 40, 240}, overlapping = {{14, 3, 2}, 40, 240}, tight = {{0, 0, 1}, 12, 36};
#define WRITE(box, host_box, extent)                                                                                   \
    clEnqueueWriteBufferRect(queue, sub_a, CL_TRUE, (box).origin, (host_box).origin, extent, (box).row_pitch,           \
                             (box).slice_pitch, (host_box).row_pitch, (host_box).slice_pitch, host, 0, NULL, NULL)
#define COPY(from, source, to, target)                                                                                 \
    clEnqueueCopyBufferRect(queue, from, to, (source).origin, (target).origin, region, (source).row_pitch,                 \
                            (source).slice_pitch, (target).row_pitch, (target).slice_pitch, 0, NULL, NULL)
    CHECK(WRITE(in_a, in_host, region));
    copy_box(a + 256, in_a, host, in_host, region);
    CHECK(COPY(memory_a, in_a, memory_b, in_b));
    copy_box(b, in_b, a, in_a, region);
    // Rows of one box may lie between those of the other.
    CHECK(COPY(memory_a, in_a, memory_a, beside));
    copy_box(a, beside, a, in_a, region);
    // Pitches of 0 are the region's.
    CHECK(clEnqueueReadBufferRect(queue, memory_b, CL_TRUE, in_b.origin, tight.origin, region, in_b.row_pitch, in_b.slice_pitch,
                                  0, 0, back, 0, NULL, NULL));
    copy_box(expected, tight, b, in_b, region);
    EXPECT_TRUE(!memcmp(back, expected, BOX_BYTES));
    CHECK(clEnqueueReadBuffer(queue, memory_a, CL_TRUE, 0, BOX_BYTES, got, 0, NULL, NULL));
    EXPECT_TRUE(!memcmp(got, a, BOX_BYTES));
    CHECK(clEnqueueReadBuffer(queue, memory_b, CL_TRUE, 0, BOX_BYTES, got, 0, NULL, NULL));
    EXPECT_TRUE(!memcmp(got, b, BOX_BYTES));

    EXPECT(COPY(memory_a, in_a, memory_a, overlapping), CL_MEM_COPY_OVERLAP);
    EXPECT(COPY(memory_a, in_a, memory_a, in_b), CL_INVALID_VALUE);
    EXPECT(WRITE(in_a, in_host, empty), CL_INVALID_VALUE);
    EXPECT(WRITE(((struct box){{0, 0, 0}, 11, 240}), in_host, region), CL_INVALID_VALUE);
    EXPECT(WRITE(((struct box){{0, 0, 0}, 40, 100}), in_host, region), CL_INVALID_VALUE);
    EXPECT(WRITE(((struct box){{0, 3, 3}, 40, 240}), in_host, region), CL_INVALID_VALUE);
    CHECK(clReleaseMemObject(memory_a));
    CHECK(clReleaseMemObject(memory_b));
    CHECK(clReleaseMemObject(sub_a));
}

static void check_fills(struct device device, cl_command_queue queue)
{
    cl_uchar pattern[256], expected[2048], got[2048];
    for (size_t i = 0; i < sizeof pattern; ++i)
        pattern[i] = (cl_uchar)xorshift32(i + 7);
    cl_mem buffer = make_buffer(device, 0, sizeof got, NULL), sub = make_sub_buffer(buffer, 128, 1920);
    CHECK(clEnqueueFillBuffer(queue, buffer, pattern, 1, 0, sizeof got, 0, NULL, NULL));
    memset(expected, pattern[0], sizeof expected);
    for (size_t size = 1; size <= 128; size *= 2) {
        const size_t offset = 1920 - 2 * size * 7, length = 3 * size;
        CHECK(clEnqueueFillBuffer(queue, sub, pattern + size, size, offset, length, 0, NULL, NULL));
        for (size_t i = 0; i < length; ++i)
            expected[128 + offset + i] = pattern[size + i % size];
    }
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    EXPECT_TRUE(!memcmp(got, expected, sizeof got));
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 3, 0, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 0, 0, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 256, 0, 512, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 8, 4, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 8, 8, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, NULL, 8, 8, 16, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, sub, pattern, 8, 1920, 8, 0, NULL, NULL), CL_INVALID_VALUE);

    // Objects may be asked to move; what is in them stays.
    const cl_mem both[] = {buffer, sub};
    CHECK(clEnqueueMigrateMemObjects(queue, 2, both, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
    CHECK(clEnqueueMigrateMemObjects(queue, 1, both, 0, 0, NULL, NULL));
    CHECK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    EXPECT_TRUE(!memcmp(got, expected, sizeof got));
    EXPECT(clEnqueueMigrateMemObjects(queue, 0, both, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, both, 1u << 20, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK(clReleaseMemObject(buffer));
    CHECK(clReleaseMemObject(sub));
}

static void check_maps(struct device device, cl_command_queue queue)
{
    cl_int status;
    cl_uint values[256], got[256];
    for (cl_uint i = 0; i < 256; ++i)
        values[i] = i * 3;
    cl_mem buffer = make_buffer(device, CL_MEM_COPY_HOST_PTR, sizeof values, values);
    // A region mapped to be written has its content, and what is not written of it stays.
    cl_uint *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 64, 256, 0, NULL, NULL, &status);
    CHECK(status);
    EXPECT_TRUE(mapped[0] == 16 * 3 && mapped[63] == 79 * 3);
    mapped[1] = values[17] = 1000;
    cl_uint *other = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 512, 8, 0, NULL, NULL, &status);
    CHECK(status);
    other[0] = values[128] = 1001;
    other[1] = values[129] = 1002;
    EXPECT_INFO((cl_uint)2, clGetMemObjectInfo, buffer, CL_MEM_MAP_COUNT);
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, got, 0, NULL, NULL), CL_INVALID_VALUE);
    cl_event unmapped;
    CHECK(clEnqueueUnmapMemObject(queue, buffer, other, 0, NULL, NULL));
    CHECK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, &unmapped));
    CHECK(clWaitForEvents(1, &unmapped));
    EXPECT_INFO((cl_command_type)CL_COMMAND_UNMAP_MEM_OBJECT, clGetEventInfo, unmapped, CL_EVENT_COMMAND_TYPE);
    EXPECT_INFO((cl_uint)0, clGetMemObjectInfo, buffer, CL_MEM_MAP_COUNT);
    CHECK(clReleaseEvent(unmapped));
    mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 4, sizeof values - 4, 0, NULL, NULL, &status);
    CHECK(status);
    EXPECT_TRUE(!memcmp(mapped, values + 1, sizeof values - 4));
    CHECK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
#define MAP(memory, flags, offset, size) clEnqueueMapBuffer(queue, memory, CL_TRUE, flags, offset, size, 0, NULL, NULL, &status)
    EXPECT_NO_OBJECT(MAP(buffer, CL_MAP_READ, 1020, 8), CL_INVALID_VALUE);
    EXPECT_NO_OBJECT(MAP(buffer, CL_MAP_READ, 0, 0), CL_INVALID_VALUE);
    CHECK(clReleaseMemObject(buffer));

    // Memory that is the program's is mapped where it is.
    buffer = make_buffer(device, CL_MEM_USE_HOST_PTR | CL_MEM_HOST_READ_ONLY, sizeof values, values);
    cl_mem sub = make_sub_buffer(buffer, 256, 512);
    const cl_uint filling = 77;
    CHECK(clEnqueueFillBuffer(queue, sub, &filling, sizeof filling, 0, 512, 0, NULL, NULL));
    mapped = MAP(sub, CL_MAP_READ, 128, 384);
    CHECK(status);
    EXPECT_TRUE(mapped == values + 96 && values[96] == 77 && values[191] == 77);
    CHECK(clEnqueueUnmapMemObject(queue, sub, mapped, 0, NULL, NULL));
    EXPECT_NO_OBJECT(MAP(sub, CL_MAP_WRITE, 0, 8), CL_INVALID_OPERATION);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 8, got, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK(clFinish(queue));
    CHECK(clReleaseMemObject(sub));
    CHECK(clReleaseMemObject(buffer));
}
