// Lanes of a warp that are at a resume point, and those that have not ended.
static uint2 ptx_lanes_waiting(__local const uint *points, uint warp_size, uint point)
{
    uint2 lanes = (uint2)(0, 0);
    for (uint i = 0; i < warp_size; i++) {
        lanes.x |= (uint)(points[i] == point) << i;
        lanes.y |= (uint)(points[i] != 0xffffffffu) << i;
    }
    return lanes;
}

// Those of some lanes that name a member mask.
static uint ptx_lanes_naming(__local const uint *masks, uint lanes, uint mask)
{
    uint naming = 0;
    for (uint i = 0; i < 32; i++) if (lanes >> i & 1) naming |= (uint)(masks[i] == mask) << i;
    return naming;
}

// Source lane of shfl.up; 32 if it lies outside.
static uint ptx_shfl_up(uint lane, uint b, uint c)
{
    const uint segment = c >> 8 & 31;
    const int from = (int)lane - (int)(b & 31);
    return from >= (int)((lane & segment) | (c & 31 & ~segment)) ? (uint)from : 32;
}

static uint ptx_shfl_down(uint lane, uint b, uint c)
{
    const uint segment = c >> 8 & 31, from = lane + (b & 31);
    return from <= ((lane & segment) | (c & 31 & ~segment)) ? from : 32;
}

static uint ptx_shfl_bfly(uint lane, uint b, uint c)
{
    const uint segment = c >> 8 & 31, from = lane ^ (b & 31);
    return from <= ((lane & segment) | (c & 31 & ~segment)) ? from : 32;
}

static uint ptx_shfl_idx(uint lane, uint b, uint c)
{
    const uint segment = c >> 8 & 31, from = (lane & segment) | (b & 31 & ~segment);
    return from <= ((lane & segment) | (c & 31 & ~segment)) ? from : 32;
}

static uint ptx_ballot(__local const ulong *warp, uint members)
{
    uint mask = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) mask |= (uint)(warp[i] != 0) << i;
    return mask;
}

// Lanes with the same value as one of them.
static uint ptx_match(__local const ulong *warp, uint members, uint lane)
{
    uint mask = 0;
    const ulong mine = warp[lane];
    for (uint i = 0; i < 32; i++) if (members >> i & 1) mask |= (uint)(warp[i] == mine) << i;
    return mask;
}

static uint ptx_redux_add(__local const ulong *warp, uint members)
{
    uint all = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all += (uint)warp[i];
    return all;
}

static uint ptx_redux_min_u32(__local const ulong *warp, uint members)
{
    uint all = 0xffffffffu;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all = min(all, (uint)warp[i]);
    return all;
}

static int ptx_redux_min_s32(__local const ulong *warp, uint members)
{
    int all = 0x7fffffff;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all = min(all, as_int((uint)warp[i]));
    return all;
}

static uint ptx_redux_max_u32(__local const ulong *warp, uint members)
{
    uint all = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all = max(all, (uint)warp[i]);
    return all;
}

static int ptx_redux_max_s32(__local const ulong *warp, uint members)
{
    int all = as_int(0x80000000u);
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all = max(all, as_int((uint)warp[i]));
    return all;
}

static uint ptx_redux_and(__local const ulong *warp, uint members)
{
    uint all = 0xffffffffu;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all &= (uint)warp[i];
    return all;
}

static uint ptx_redux_or(__local const ulong *warp, uint members)
{
    uint all = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all |= (uint)warp[i];
    return all;
}

static uint ptx_redux_xor(__local const ulong *warp, uint members)
{
    uint all = 0;
    for (uint i = 0; i < 32; i++) if (members >> i & 1) all ^= (uint)warp[i];
    return all;
}
