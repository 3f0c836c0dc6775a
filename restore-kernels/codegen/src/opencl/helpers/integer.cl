// Division by zero gives all ones.
static uint ptx_div_u32(uint a, uint b)
{
    return b == 0 ? 0xffffffffu : a / b;
}

static int ptx_div_s32(int a, int b)
{
    if (b == 0) return -1;
    return b == -1 ? as_int(0u - as_uint(a)) : a / b;
}

static ulong ptx_div_u64(ulong a, ulong b)
{
    return b == 0 ? 0xfffffffffffffffful : a / b;
}

static long ptx_div_s64(long a, long b)
{
    if (b == 0) return -1;
    return b == -1 ? as_long(0ul - as_ulong(a)) : a / b;
}

static uint ptx_rem_u32(uint a, uint b)
{
    return b == 0 ? 0xffffffffu : a % b;
}

static int ptx_rem_s32(int a, int b)
{
    if (b == 0) return -1;
    return b == -1 ? 0 : a % b;
}

static ulong ptx_rem_u64(ulong a, ulong b)
{
    return b == 0 ? 0xfffffffffffffffful : a % b;
}

static long ptx_rem_s64(long a, long b)
{
    if (b == 0) return -1;
    return b == -1 ? 0 : a % b;
}

// Shift amounts clamp at the width.
static uint ptx_shl_32(uint a, uint amount)
{
    return amount > 31 ? 0 : a << amount;
}

static ulong ptx_shl_64(ulong a, uint amount)
{
    return amount > 63 ? 0 : a << amount;
}

static uint ptx_shr_u32(uint a, uint amount)
{
    return amount > 31 ? 0 : a >> amount;
}

static int ptx_shr_s32(int a, uint amount)
{
    return a >> min(amount, 31u);
}

static ulong ptx_shr_u64(ulong a, uint amount)
{
    return amount > 63 ? 0 : a >> amount;
}

static long ptx_shr_s64(long a, uint amount)
{
    return a >> min(amount, 63u);
}

static uint ptx_shf_l(uint low, uint high, uint amount)
{
    return (uint)(((ulong)high << 32 | low) << amount >> 32);
}

static uint ptx_shf_l_clamp(uint low, uint high, uint amount)
{
    return amount > 31 ? low : ptx_shf_l(low, high, amount);
}

static uint ptx_shf_r_clamp(uint low, uint high, uint amount)
{
    return (uint)(((ulong)high << 32 | low) >> min(amount, 32u));
}

static uint ptx_clz_32(uint a)
{
    return a == 0 ? 32 : clz(a);
}

static uint ptx_clz_64(ulong a)
{
    return a == 0 ? 64 : (uint)clz(a);
}

static uint ptx_brev_32(uint a)
{
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    a = (a >> 8 & 0x00ff00ffu) | (a & 0x00ff00ffu) << 8;
    return a >> 16 | a << 16;
}

static ulong ptx_brev_64(ulong a)
{
    return (ulong)ptx_brev_32((uint)a) << 32 | ptx_brev_32((uint)(a >> 32));
}

// Position of the highest bit that differs from the sign; all ones if there is none.
static uint ptx_bfind_u32(uint a)
{
    return a == 0 ? 0xffffffffu : 31 - clz(a);
}

static uint ptx_bfind_s32(int a)
{
    return ptx_bfind_u32(as_uint(a < 0 ? ~a : a));
}

static uint ptx_bfind_u64(ulong a)
{
    return a == 0 ? 0xffffffffu : 63 - (uint)clz(a);
}

static uint ptx_bfind_s64(long a)
{
    return ptx_bfind_u64(as_ulong(a < 0 ? ~a : a));
}

static uint ptx_bfind_shiftamt(uint position, uint top)
{
    return position == 0xffffffffu ? position : top - position;
}

// Positions and lengths beyond 255: the 32-bit forms look at 8 bits, the 64-bit forms at all.
static uint ptx_bfe_u32(uint a, uint position, uint length)
{
    position &= 255;
    length &= 255;
    const uint field = position > 31 ? 0 : a >> position;
    return length > 31 ? field : field & ((1u << length) - 1);
}

static uint ptx_bfe_s32(int number, uint position, uint length)
{
    const uint a = as_uint(number);
    position &= 255;
    length &= 255;
    if (length == 0) return 0;
    const uint sign = 0u - (a >> min(position + length - 1, 31u) & 1);
    const uint kept = position > 31 ? 0 : min(length, 32 - position);
    const uint mask = kept > 31 ? 0xffffffffu : (1u << kept) - 1;
    const uint field = position > 31 ? 0 : a >> position;
    return (field & mask) | (sign & ~mask);
}

static ulong ptx_bfe_u64(ulong a, uint position, uint length)
{
    const ulong field = position > 63 ? 0 : a >> position;
    return length > 63 ? field : field & ((1ul << length) - 1);
}

static ulong ptx_bfe_s64(long number, uint position, uint length)
{
    const ulong a = as_ulong(number);
    position = min(position, 255u);
    length = min(length, 255u);
    if (length == 0) return 0;
    const ulong sign = 0ul - (a >> min(position + length - 1, 63u) & 1);
    const uint kept = position > 63 ? 0 : min(length, 64 - position);
    const ulong mask = kept > 63 ? 0xfffffffffffffffful : (1ul << kept) - 1;
    const ulong field = position > 63 ? 0 : a >> position;
    return (field & mask) | (sign & ~mask);
}

static uint ptx_bfi_32(uint from, uint into, uint position, uint length)
{
    position &= 255;
    length &= 255;
    if (position > 31) return into;
    const uint mask = (length > 31 ? 0xffffffffu : (1u << length) - 1) << position;
    return (into & ~mask) | (from << position & mask);
}

static ulong ptx_bfi_64(ulong from, ulong into, uint position, uint length)
{
    if (position > 63) return into;
    const ulong mask = (length > 63 ? 0xfffffffffffffffful : (1ul << length) - 1) << position;
    return (into & ~mask) | (from << position & mask);
}

static uint ptx_bmsk_wrap(uint position, uint length)
{
    const uint end = (position & 31) + (length & 31);
    return 0xffffffffu << (position & 31) & (end > 31 ? 0xffffffffu : (1u << end) - 1);
}

static uint ptx_bmsk_clamp(uint position, uint length)
{
    if (position > 31) return 0;
    return length > 31 ? 0xffffffffu << position : ptx_bmsk_wrap(position, length);
}

// One byte of prmt: the low three bits of the selector choose it, the fourth spreads its sign.
static uint ptx_prmt_byte(ulong bytes, uint selector)
{
    const uint chosen = (uint)(bytes >> 8 * (selector & 7)) & 255;
    return selector & 8 ? (chosen & 128 ? 255 : 0) : chosen;
}

static uint ptx_prmt(uint a, uint b, uint selector)
{
    const ulong bytes = (ulong)b << 32 | a;
    return ptx_prmt_byte(bytes, selector) | ptx_prmt_byte(bytes, selector >> 4) << 8
        | ptx_prmt_byte(bytes, selector >> 8) << 16 | ptx_prmt_byte(bytes, selector >> 12) << 24;
}

// Bit 4a + 2b + c of the table for each bit.
static uint ptx_lop3(uint a, uint b, uint c, uint table)
{
    return ((0u - (table & 1)) & ~a & ~b & ~c) | ((0u - (table >> 1 & 1)) & ~a & ~b & c)
        | ((0u - (table >> 2 & 1)) & ~a & b & ~c) | ((0u - (table >> 3 & 1)) & ~a & b & c)
        | ((0u - (table >> 4 & 1)) & a & ~b & ~c) | ((0u - (table >> 5 & 1)) & a & ~b & c)
        | ((0u - (table >> 6 & 1)) & a & b & ~c) | ((0u - (table >> 7 & 1)) & a & b & c);
}
