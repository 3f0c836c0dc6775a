// Threads keep lists on the heap of kernels: each takes a node a round, and gives them back when its list is long. What
// is left is summed up by another kernel.
//
// The values are steps of a linear congruential generator, so their sum over any number of rounds has a closed form.
#include "program.h"

constexpr uint32_t THREADS = 128, LONGEST = 8;
constexpr uint32_t FACTOR = 1664525, SUMMAND = 1013904223;

struct Node {
    Node *next;
    uint32_t value;
};

struct List {
    Node *first;
    uint32_t length, sum;
    // How often there was no memory.
    uint32_t lost;
};

__device__ void clear(List &list)
{
    while (list.first) {
        Node *node = list.first;
        list.sum += node->value;
        list.first = node->next;
        free(node);
    }
    list.length = 0;
}

__global__ void grow(List *lists, uint32_t n, uint64_t rounds)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    List list = lists[i];
    uint32_t value = i;
    for (uint64_t round = 0; round < rounds; ++round) {
        Node *node = new Node;
        if (node) {
            node->value = value;
            node->next = list.first;
            list.first = node;
        } else {
            ++list.lost;
        }
        value = value * FACTOR + SUMMAND;
        if (++list.length >= LONGEST)
            clear(list);
    }
    lists[i] = list;
}

__global__ void gather(List *lists, uint32_t n)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        clear(lists[i]);
}

// What rounds do to a value and to the sum of those before: value * factor + summand, sum + value * of_value + constant.
struct Rounds {
    uint32_t factor, summand, of_value, constant;
};

static Rounds after(const Rounds &first, const Rounds &second)
{
    return {first.factor * second.factor, first.summand * second.factor + second.summand,
            first.of_value + first.factor * second.of_value,
            first.constant + first.summand * second.of_value + second.constant};
}

static Rounds power(Rounds one, uint64_t times)
{
    Rounds all = {1, 0, 0, 0};
    for (; times; times >>= 1) {
        if (times & 1)
            all = after(all, one);
        one = after(one, one);
    }
    return all;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "device_heap", "threads keep lists on the heap of kernels",
                              {{"n", 512, 1, 1u << 20, "threads"},
                               {"launches", 3, 1, 1u << 20, "launches"},
                               {"rounds", 100, 1, UINT64_MAX, "nodes that each thread takes in a launch"}});
    const uint32_t n = uint32_t(arguments["n"]), blocks = (n + THREADS - 1) / THREADS;
    const uint64_t launches = arguments["launches"], rounds = arguments["rounds"];
    CHECK_CUDA(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t(n) * (LONGEST + 1) * 64 + (1 << 20)));
    List *lists;
    CHECK_CUDA(cudaMalloc(&lists, n * sizeof(List)));
    CHECK_CUDA(cudaMemset(lists, 0, n * sizeof(List)));
    for (uint64_t launch = 1; launch <= launches; ++launch) {
        grow<<<blocks, THREADS>>>(lists, n, rounds);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        arguments.progress("launch", launch);
    }
    gather<<<blocks, THREADS>>>(lists, n);
    CHECK_LAUNCH();
    std::vector<List> results(n);
    CHECK_CUDA(cudaMemcpy(results.data(), lists, n * sizeof(List), cudaMemcpyDeviceToHost));

    const Rounds all = power({FACTOR, SUMMAND, 1, 0}, rounds);
    bool correct = true;
    Digest digest;
    for (uint32_t i = 0; i < n; ++i) {
        // Each launch begins anew.
        const uint32_t sum = results[i].sum, expected = uint32_t(launches) * (i * all.of_value + all.constant);
        digest.add(&sum, sizeof sum);
        if (correct && results[i].lost)
            correct = mismatch("nodes without memory", i, results[i].lost, 0u);
        if (correct && sum != expected)
            correct = mismatch("sum", i, sum, expected);
    }
    CHECK_CUDA(cudaFree(lists));
    return finish(arguments, digest, correct);
}
