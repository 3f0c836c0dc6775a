// Sorts pairs by Thrust's radix sort, whose kernels are among the largest of public programs.
#include <cstdio>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

int main()
{
    const unsigned n = 1 << 16;
    std::vector<unsigned> keys(n);
    unsigned state = 1;
    for (unsigned &key : keys)
        key = state = state * 1664525u + 1013904223u;
    thrust::device_vector<unsigned> sorted(keys.begin(), keys.end());
    thrust::device_vector<unsigned> places(n);
    thrust::sequence(places.begin(), places.end());
    thrust::sort_by_key(sorted.begin(), sorted.end(), places.begin());
    std::vector<unsigned> result(n), from(n);
    thrust::copy(sorted.begin(), sorted.end(), result.begin());
    thrust::copy(places.begin(), places.end(), from.begin());
    bool is_right = true;
    for (unsigned i = 0; i < n; ++i)
        is_right &= result[i] == keys[from[i]] && (i == 0 || result[i - 1] <= result[i]);
    std::puts(is_right ? "PASS" : "FAIL");
    return is_right ? 0 : 1;
}
