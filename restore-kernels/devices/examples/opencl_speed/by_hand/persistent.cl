#define THREADS 256
#define NUM_KEYS 32

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void persistent(__global const uint *restrict in, __global uint *restrict out, uint num_items, uint rounds,
                __constant uint *round_keys, __global uint *next_item, __global uint *items_done)
{
    __local uint ring[2][THREADS];
    __local uint item;
    const uint thread = get_local_id(0);
    uint items_of_block = 0;
    for (;;) {
        if (thread == 0) item = atomic_inc(next_item);
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint current = item;
        if (current >= num_items) break;
        uint value = in[current * THREADS + thread];
        for (uint round = 0; round < rounds; round++) {
            __local uint *words = ring[round % 2];
            words[thread] = value;
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint left = words[(thread + THREADS - 1) % THREADS], right = words[(thread + 1) % THREADS];
            value = rotate(left, 7u) ^ (right * 0x9e3779b1u + value + round_keys[round % NUM_KEYS]);
        }
        out[current * THREADS + thread] = value;
        items_of_block++;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0) atomic_add(items_done, items_of_block);
}
