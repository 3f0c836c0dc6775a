//! Functions that call themselves and indirect branches, run in the reference interpreter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use support::{execute, kernel};

/// A module with `functions` before the kernel that [`kernel`] makes of `body`.
fn with_functions(functions: &str, body: &str) -> String {
    kernel(body).replacen(".entry", &format!("{functions}\n.entry"), 1)
}

const CALL: &str = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), f, (a); ld.param.b32 %r2, [r]; }
    st.global.u32 [%rd3], %r2;";

#[test]
fn registers_of_a_call_outlast_calls_in_it() {
    // Fibonacci's numbers, with a predicate, and registers of 16 and 64 bits that are needed behind the calls.
    let f = ".func (.param .b32 r) f(.param .b32 a) {
        .reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<8>; .reg .b64 %rd<3>;
        ld.param.b32 %r1, [a]; setp.lt.u32 %p1, %r1, 2; mov.u32 %r6, %r1; @%p1 bra DONE;
        cvt.u16.u32 %h1, %r1; mul.wide.u32 %rd1, %r1, 3; and.b32 %r5, %r1, 1; setp.eq.u32 %p2, %r5, 1;
        sub.u32 %r2, %r1, 1;
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call.uni (y), f, (x); ld.param.b32 %r3, [y]; }
        sub.u32 %r2, %r1, 2;
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call.uni (y), f, (x); ld.param.b32 %r4, [y]; }
        add.u32 %r6, %r3, %r4;
        // All of these are what they were.
        cvt.u32.u16 %r7, %h1; setp.ne.u32 %p1, %r7, %r1; @%p1 trap;
        cvt.u32.u64 %r7, %rd1; mul.lo.u32 %r5, %r1, 3; setp.ne.u32 %p1, %r7, %r5; @%p1 trap;
        and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; xor.pred %p1, %p1, %p2; @%p1 trap;
        DONE: st.param.b32 [r], %r6; ret; }";
    let found = execute(&with_functions(f, CALL), 16, 0, &[], &[0; 16]);
    assert_eq!(found, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]);
}

#[test]
fn what_is_needed_behind_two_calls_outlasts_both() {
    // Every call writes all registers before its own calls, and needs them behind the second one only.
    let f = ".func (.param .b32 r) f(.param .b32 a) {
        .reg .pred %p<2>; .reg .b32 %r<8>;
        ld.param.b32 %r1, [a]; mul.lo.u32 %r5, %r1, 100; setp.lt.u32 %p1, %r1, 2; @%p1 bra DONE;
        sub.u32 %r2, %r1, 1;
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call.uni (y), f, (x); ld.param.b32 %r3, [y]; }
        { .param .b32 x; .param .b32 y; st.param.b32 [x], 1; call.uni (y), f, (x); ld.param.b32 %r4, [y]; }
        add.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r4;
        DONE: st.param.b32 [r], %r5; ret; }";
    let found = execute(&with_functions(f, CALL), 8, 0, &[], &[0; 8]);
    let mut expected = vec![0, 100];
    for n in 2..8 {
        expected.push(100 * n + expected.last().unwrap() + 100);
    }
    assert_eq!(found, expected);
}

#[test]
fn each_call_has_its_own_variables() {
    // Each call keeps its argument in its own array, and adds what the call in it has left in its caller's.
    let g = ".func g(.param .b64 place, .param .b32 a) {
        .local .align 8 .b8 own[16]; .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
        ld.param.b64 %rd1, [place]; ld.param.b32 %r1, [a];
        mov.u64 %rd2, own; cvta.local.u64 %rd3, %rd2;
        st.local.u32 [own+8], %r1; st.local.u32 [%rd2+4], 0;
        setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE;
        sub.u32 %r2, %r1, 1;
        { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd3; st.param.b32 [y], %r2; call.uni g, (x, y); }
        DONE: ld.u32 %r3, [%rd3+4]; ld.local.u32 %r4, [own+8]; add.u32 %r5, %r3, %r4; st.u32 [%rd1+4], %r5; ret; }
        .func (.param .b32 r) f(.param .b32 a) {
        .local .align 8 .b8 own[8]; .reg .b32 %r<3>; .reg .b64 %rd<3>;
        ld.param.b32 %r1, [a]; mov.u64 %rd1, own; cvta.local.u64 %rd2, %rd1;
        { .param .b64 x; .param .b32 y; st.param.b64 [x], %rd2; st.param.b32 [y], %r1; call.uni g, (x, y); }
        ld.local.u32 %r2, [own+4]; st.param.b32 [r], %r2; ret; }";
    let found = execute(&with_functions(g, CALL), 32, 0, &[], &[0; 32]);
    let expected: Vec<u32> = (0..32).map(|n| n * (n + 1) / 2).collect();
    assert_eq!(found, expected);
}

#[test]
fn functions_may_call_each_other_with_structures() {
    // `even` and `odd` hand a structure of three words to and fro; one word counts, one says how it ends.
    let function = |name: &str, other: &str, end: u32| {
        format!(
            ".func (.param .align 4 .b8 r[12]) {name}(.param .align 4 .b8 a[12]) {{
            .reg .pred %p<2>; .reg .b32 %r<6>;
            ld.param.b32 %r1, [a]; ld.param.b32 %r2, [a+4]; ld.param.b32 %r3, [a+8];
            setp.ne.u32 %p1, %r1, 0; @%p1 bra MORE;
            st.param.b32 [r], {end}; st.param.b32 [r+4], %r2; st.param.b32 [r+8], %r3; ret;
            MORE: sub.u32 %r4, %r1, 1; add.u32 %r5, %r2, 1;
            {{ .param .align 4 .b8 x[12]; .param .align 4 .b8 y[12];
            st.param.b32 [x], %r4; st.param.b32 [x+4], %r5; st.param.b32 [x+8], %r3;
            call.uni (y), {other}, (x);
            ld.param.b32 %r4, [y]; ld.param.b32 %r5, [y+4]; ld.param.b32 %r3, [y+8]; }}
            add.u32 %r3, %r3, %r1;
            st.param.b32 [r], %r4; st.param.b32 [r+4], %r5; st.param.b32 [r+8], %r3; ret; }}"
        )
    };
    let prototype = ".func (.param .align 4 .b8 r[12]) odd(.param .align 4 .b8 a[12]);";
    let f = ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<6>; ld.param.b32 %r1, [a];
        { .param .align 4 .b8 x[12]; .param .align 4 .b8 y[12];
        st.param.b32 [x], %r1; st.param.b32 [x+4], 0; st.param.b32 [x+8], 0;
        call.uni (y), even, (x); ld.param.b32 %r2, [y]; ld.param.b32 %r3, [y+4]; ld.param.b32 %r4, [y+8]; }
        mad.lo.u32 %r2, %r3, 10, %r2; mad.lo.u32 %r2, %r4, 1000, %r2; st.param.b32 [r], %r2; ret; }";
    let functions = [prototype, &function("even", "odd", 0), &function("odd", "even", 1), f].join("\n");
    let found = execute(&with_functions(&functions, CALL), 20, 0, &[], &[0; 20]);
    let expected: Vec<u32> = (0..20).map(|n| n % 2 + 10 * n + 1000 * (n * (n + 1) / 2)).collect();
    assert_eq!(found, expected);
}

#[test]
#[should_panic(expected = "Trap")]
fn a_stack_that_runs_full_ends_the_kernel() {
    let f = ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<4>; ld.param.b32 %r1, [a];
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), f, (x); ld.param.b32 %r2, [y]; }
        add.u32 %r3, %r2, %r1; st.param.b32 [r], %r3; ret; }";
    execute(&with_functions(f, CALL), 1, 0, &[], &[0]);
}

#[test]
fn indirect_branches_take_the_label_of_their_number() {
    let body = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
        and.b32 %r2, %r1, 3; setp.lt.u32 %p1, %r1, 8; mov.u32 %r3, 7;
        T: .branchtargets A, B, C, A;
        @%p1 brx.idx %r2, T;
        bra DONE;
        A: mov.u32 %r3, 10; bra DONE;
        B: mov.u32 %r3, 20; bra DONE;
        C: mov.u32 %r3, 30;
        DONE: st.global.u32 [%rd3], %r3;";
    let found = execute(&kernel(body), 10, 0, &[], &[0; 10]);
    assert_eq!(found, [10, 20, 30, 10, 10, 20, 30, 10, 7, 7]);
}
