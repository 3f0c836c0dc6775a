// flow
#pragma OPENCL FP_CONTRACT OFF


typedef struct {
    uint param_0; // count
} __attribute__((packed, aligned(16))) params_type;

__kernel void hetckpt_flow(
    __global uchar *arena,
    ulong arena_base,
    params_type params,
    __global uint *trapped)
{
    bool p1, p4, p5 = 0, p6;
    uint r0, r3 = 0;

    for (;;) {
        r0 = params.param_0; // line 13
        p1 = as_int(r0) == 0; // line 14
        if (p1) goto bb2; // line 15
        if (p1) break; // line 16
        for (;;) {
            r3 = r3 + 1u; // line 20
            p4 = r3 < r0; // line 23
            if (!p4) goto bb6; // line 24
            if (p5) goto bb8; // line 27
            p6 = as_int(r3) != 9; // line 29
            if (p6) break; // line 30
        }
    }
    goto bb11; // line 17
bb6:;
bb11:;
    if (!p1) { // line 36
        return;
    }
    return;
bb8:;
    *trapped = 1; // line 27
    return;
bb2:;
    return; // line 15
}
