// Put before generated OpenCL C: atomics that hold for the whole device, where those of the translator hold for one work-group.
// 1 is that scope, 0 asks for no order.
#define ATOMIC(name, instruction, type, space) \
    type __attribute__((overloadable)) instruction(volatile space type *, uint, uint, type); \
    static type __attribute__((overloadable)) name(volatile space type *at, type value) \
    { \
        return instruction(at, 1u, 0u, value); \
    }
#define ATOMIC_COMPARE(name, type, space) \
    type __attribute__((overloadable)) \
    __spirv_AtomicCompareExchange(volatile space type *, uint, uint, uint, type, type); \
    static type __attribute__((overloadable)) name(volatile space type *at, type expected, type value) \
    { \
        return __spirv_AtomicCompareExchange(at, 1u, 0u, 0u, value, expected); \
    }
#define ATOMICS(prefix, type, sign, space) \
    ATOMIC(prefix##_add, __spirv_AtomicIAdd, type, space) \
    ATOMIC(prefix##_sub, __spirv_AtomicISub, type, space) \
    ATOMIC(prefix##_xchg, __spirv_AtomicExchange, type, space) \
    ATOMIC(prefix##_min, __spirv_Atomic##sign##Min, type, space) \
    ATOMIC(prefix##_max, __spirv_Atomic##sign##Max, type, space) \
    ATOMIC(prefix##_and, __spirv_AtomicAnd, type, space) \
    ATOMIC(prefix##_or, __spirv_AtomicOr, type, space) \
    ATOMIC(prefix##_xor, __spirv_AtomicXor, type, space) \
    ATOMIC_COMPARE(prefix##_cmpxchg, type, space)
ATOMICS(spirv_atomic, int, S, __global)
ATOMICS(spirv_atomic, int, S, __local)
ATOMICS(spirv_atomic, uint, U, __global)
ATOMICS(spirv_atomic, uint, U, __local)
ATOMICS(spirv_atom, long, S, __global)
ATOMICS(spirv_atom, long, S, __local)
ATOMICS(spirv_atom, ulong, U, __global)
ATOMICS(spirv_atom, ulong, U, __local)
#define atomic_add spirv_atomic_add
#define atomic_sub spirv_atomic_sub
#define atomic_xchg spirv_atomic_xchg
#define atomic_min spirv_atomic_min
#define atomic_max spirv_atomic_max
#define atomic_and spirv_atomic_and
#define atomic_or spirv_atomic_or
#define atomic_xor spirv_atomic_xor
#define atomic_cmpxchg spirv_atomic_cmpxchg
#define atomic_inc(at) spirv_atomic_add(at, 1)
#define atomic_dec(at) spirv_atomic_sub(at, 1)
#define atom_add spirv_atom_add
#define atom_sub spirv_atom_sub
#define atom_xchg spirv_atom_xchg
#define atom_min spirv_atom_min
#define atom_max spirv_atom_max
#define atom_and spirv_atom_and
#define atom_or spirv_atom_or
#define atom_xor spirv_atom_xor
#define atom_cmpxchg spirv_atom_cmpxchg
