// The part of cl_api.c that is about kernels: what they say of themselves, their arguments, and tasks.
#pragma once

#include "program.h"

// The kernel with this name of the three that the program has.
static cl_kernel find_kernel(cl_program program, const char *name)
{
    cl_kernel kernels[3], found = NULL;
    cl_uint count;
    CHECK(clCreateKernelsInProgram(program, 0, NULL, &count));
    EXPECT_TRUE(count == 3);
    EXPECT(clCreateKernelsInProgram(program, 2, kernels, NULL), CL_INVALID_VALUE);
    CHECK(clCreateKernelsInProgram(program, 3, kernels, &count));
    for (cl_uint i = 0; i < count; ++i) {
        char got[64];
        CHECK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof got, got, NULL));
        if (!found && !strcmp(got, name))
            found = kernels[i];
        else
            CHECK(clReleaseKernel(kernels[i]));
    }
    EXPECT_TRUE(found);
    return found;
}

// An argument as it is declared.
static void expect_argument(cl_kernel kernel, cl_uint index, const char *name, const char *type, cl_uint space, cl_ulong qualifiers)
{
    char got[64];
    CHECK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_NAME, sizeof got, got, NULL));
    EXPECT_TRUE(!strcmp(got, name));
    CHECK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof got, got, NULL));
    EXPECT_TRUE(!strcmp(got, type));
    EXPECT_INFO((cl_kernel_arg_address_qualifier)space, clGetKernelArgInfo, kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
    EXPECT_INFO((cl_kernel_arg_type_qualifier)qualifiers, clGetKernelArgInfo, kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER);
    EXPECT_INFO((cl_kernel_arg_access_qualifier)CL_KERNEL_ARG_ACCESS_NONE, clGetKernelArgInfo, kernel, index,
                CL_KERNEL_ARG_ACCESS_QUALIFIER);
}

static void check_kernels(struct device device, cl_command_queue queue, cl_program program)
{
    cl_int status;
    cl_kernel blend = find_kernel(program, "blend"), sizes = find_kernel(program, "sizes");
    EXPECT_TEXT("blend", clGetKernelInfo, blend, CL_KERNEL_FUNCTION_NAME);
    EXPECT_INFO((cl_uint)5, clGetKernelInfo, blend, CL_KERNEL_NUM_ARGS);
    EXPECT_INFO(device.context, clGetKernelInfo, blend, CL_KERNEL_CONTEXT);
    EXPECT_INFO(program, clGetKernelInfo, blend, CL_KERNEL_PROGRAM);
    EXPECT_COUNTED(Kernel, blend, clGetKernelInfo, CL_KERNEL_REFERENCE_COUNT);
    EXPECT_COUNTED(Program, program, clGetProgramInfo, CL_PROGRAM_REFERENCE_COUNT);
    const cl_ulong restricted = CL_KERNEL_ARG_TYPE_CONST | CL_KERNEL_ARG_TYPE_RESTRICT;
    expect_argument(blend, 0, "in", "float*", CL_KERNEL_ARG_ADDRESS_GLOBAL, restricted);
    expect_argument(blend, 1, "table", "uint4*", CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST);
    expect_argument(blend, 2, "scratch", "short*", CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_TYPE_NONE);
    expect_argument(blend, 3, "out", "int*", CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_TYPE_VOLATILE);
    expect_argument(blend, 4, "last", "uchar", CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_TYPE_NONE);
    char name[64];
    EXPECT(clGetKernelArgInfo(blend, 5, CL_KERNEL_ARG_NAME, sizeof name, name, NULL), CL_INVALID_ARG_INDEX);
    EXPECT(clGetKernelArgInfo(blend, 0, CL_KERNEL_NUM_ARGS, sizeof name, name, NULL), CL_INVALID_VALUE);
    EXPECT(clGetKernelArgInfo(blend, 0, CL_KERNEL_ARG_NAME, 2, name, NULL), CL_INVALID_VALUE);

    size_t group[3], most, multiple, device_most;
    cl_ulong before, after;
    CHECK(clGetKernelWorkGroupInfo(blend, device.id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group, group, NULL));
    EXPECT_TRUE(group[0] == 8 && group[1] == 4 && group[2] == 1);
    CHECK(clGetKernelWorkGroupInfo(sizes, device.id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group, group, NULL));
    EXPECT_TRUE(group[0] == 0 && group[1] == 0 && group[2] == 0);
    CHECK(clGetKernelWorkGroupInfo(sizes, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    CHECK(clGetDeviceInfo(device.id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device_most, &device_most, NULL));
    EXPECT_TRUE(most > 0 && most <= device_most);
    CHECK(clGetKernelWorkGroupInfo(sizes, NULL, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple, &multiple, NULL));
    EXPECT_TRUE(multiple > 0 && multiple <= most);
    CHECK(clGetKernelWorkGroupInfo(sizes, device.id, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof before, &before, NULL));
    // A local argument counts once its size is given.
    CHECK(clGetKernelWorkGroupInfo(blend, device.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof before, &before, NULL));
    CHECK(clSetKernelArg(blend, 2, 64, NULL));
    CHECK(clGetKernelWorkGroupInfo(blend, device.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof after, &after, NULL));
    EXPECT_TRUE(after >= before + 64);
    EXPECT(clGetKernelWorkGroupInfo(blend, device.id, CL_KERNEL_NUM_ARGS, sizeof after, &after, NULL), CL_INVALID_VALUE);

    cl_mem out = make_buffer(device, CL_MEM_WRITE_ONLY, 64 * sizeof(cl_uint), NULL);
    const cl_uchar last = 1;
    EXPECT(clSetKernelArg(blend, 5, sizeof last, &last), CL_INVALID_ARG_INDEX);
    EXPECT(clSetKernelArg(blend, 4, 2, &last), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(blend, 4, sizeof last, NULL), CL_INVALID_ARG_VALUE);
    EXPECT(clSetKernelArg(blend, 3, 4, &out), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(blend, 2, 0, NULL), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(blend, 2, 64, &last), CL_INVALID_ARG_VALUE);
    EXPECT_NO_OBJECT(clCreateKernel(program, "none", &status), CL_INVALID_KERNEL_NAME);
    EXPECT_NO_OBJECT(clCreateKernel(program, NULL, &status), CL_INVALID_VALUE);

    const size_t sides[] = {8, 8}, right[] = {8, 4}, wrong[] = {4, 8}, odd[] = {3, 1};
    EXPECT(clEnqueueNDRangeKernel(queue, blend, 2, NULL, sides, right, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    EXPECT(clEnqueueTask(queue, sizes, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    SET_ARGUMENT(blend, 0, out);
    SET_ARGUMENT(blend, 1, out);
    SET_ARGUMENT(blend, 3, out);
    SET_ARGUMENT(blend, 4, last);
    SET_ARGUMENT(sizes, 0, out);
    EXPECT(clEnqueueNDRangeKernel(queue, blend, 2, NULL, sides, wrong, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, sizes, 2, NULL, sides, odd, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    EXPECT(clEnqueueNDRangeKernel(queue, sizes, 4, NULL, sides, NULL, 0, NULL, NULL), CL_INVALID_WORK_DIMENSION);
    EXPECT(clEnqueueNDRangeKernel(queue, sizes, 0, NULL, sides, NULL, 0, NULL, NULL), CL_INVALID_WORK_DIMENSION);

    // A task is one work-item in one dimension; its times go forward.
    cl_event done;
    cl_uint got = 0;
    cl_ulong times[4];
    CHECK(clEnqueueTask(queue, sizes, 0, NULL, &done));
    CHECK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof got, &got, 1, &done, NULL));
    EXPECT_TRUE(got == 111);
    EXPECT_INFO(queue, clGetEventInfo, done, CL_EVENT_COMMAND_QUEUE);
    EXPECT_INFO((cl_int)CL_COMPLETE, clGetEventInfo, done, CL_EVENT_COMMAND_EXECUTION_STATUS);
    for (cl_uint i = 0; i < 4; ++i)
        CHECK(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_QUEUED + i, sizeof times[i], &times[i], NULL));
    EXPECT_TRUE(times[0] <= times[1] && times[1] <= times[2] && times[2] <= times[3]);
    EXPECT(clGetEventProfilingInfo(done, CL_EVENT_CONTEXT, sizeof *times, times, NULL), CL_INVALID_VALUE);
    EXPECT(clSetUserEventStatus(done, CL_COMPLETE), CL_INVALID_EVENT);
    CHECK(clReleaseEvent(done));
    CHECK(clReleaseMemObject(out));
    CHECK(clReleaseKernel(blend));
    CHECK(clReleaseKernel(sizes));
}
